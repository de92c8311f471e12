"""A checkpoint in pieces as one plain file: what `tools/convert_checkpoint.py` does."""

from pathlib import Path

from seg.engine.state import checkpoint
from seg.errors import UserError


def convert(source: Path, target: Path) -> None:
    """Write `source`, a folder of FSDP's, to the file `target`, which must not be there.

    Holds the whole checkpoint in host memory. Raises UserError for a source that is damaged or no folder.
    """
    if source.is_file():
        raise UserError(f'{source} is a file already; what is converted is a folder such as epoch_3.dcp')
    if not source.is_dir():
        raise UserError(f'no checkpoint at {source}')
    if target.exists():
        raise UserError(f'{target} exists; choose another name, or remove it')
    if not target.parent.is_dir():
        raise UserError(f'{target} cannot be written: there is no folder {target.parent}')
    state = checkpoint.load(source)
    checkpoint.save(state, target)
    print(f'{target}: {target.stat().st_size / 2**20:.1f} MiB, step {state["meta"]["iter"]}')
