"""`custom_imports`: the user's modules, imported so that they register what the config names."""

from collections.abc import Mapping
from typing import Any

from mmengine.utils import import_modules_from_strings


def import_custom(config: Mapping[str, Any]) -> str | None:
    """Import what `config.custom_imports` lists; what went wrong, or None."""
    wanted = config.get('custom_imports')
    if not wanted:
        return None
    if not isinstance(wanted, Mapping) or not {'imports'} <= set(wanted) <= {'imports', 'allow_failed_imports'}:
        return f"custom_imports must be dict(imports=['package.module', ...]), got {wanted!r}"
    try:
        import_modules_from_strings(**wanted)
    except Exception as error:  # noqa: BLE001, the modules are the user's and can raise anything
        cause = error.__context__ if isinstance(error, ImportError) and error.__context__ else error
        return (
            f'custom_imports: {error} ({type(cause).__name__}: {cause}); '
            'a module must be on PYTHONPATH, and importing it by hand must work'
        )
    return None
