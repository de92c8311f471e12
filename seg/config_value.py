"""The value of a `--cfg-options` from its text, by MMEngine's rules, and `dict(...)` besides. Nothing is run.

MMEngine's own parser is used for what it knows. It recurses without end on brackets that are no list's.
"""

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from mmengine.config import DictAction

from seg.errors import UserError

_BARE_WORDS = {'true': True, 'false': False, 'none': None}


def parse_options(options: Sequence[str] | Mapping[str, Any] | None, faults: list[str] | None = None) -> dict[str, Any]:
    """Path -> value of each 'path=value'; a mapping has its values already.

    Without a list to note `faults` in, the first one is raised as UserError.
    """
    if isinstance(options, Mapping):
        return dict(options)
    parsed = {}
    for option in options or ():
        path, equals, text = option.partition('=')
        try:
            if not equals:
                raise UserError(f'--cfg-options {option}: expected key=value')
            parsed[path.strip()] = parse_value(text, option)
        except UserError as error:
            if faults is None:
                raise
            faults.append(str(error))
    return parsed


def parse_value(text: str, option: str) -> Any:
    """Numbers, true, None, [1,2], (3,4), a,b, dict(key=value), {'key': value}; anything else is a string.

    A word in a list or a dict needs no quotes. A string keeps its spaces. Raises UserError for brackets that make no
    sense; `option` is the whole option.
    """
    if _has_dict(text.strip()):
        return _parse_literal(text.strip(), option)
    try:
        value = DictAction._parse_iterable(text)
    except (AssertionError, RecursionError):
        raise UserError(
            f'--cfg-options {option}: the brackets or quotes in {text!r} do not fit. A list is [a,b], a tuple (a,b), a '
            "dict dict(key=a); put the whole option in quotes, or the shell takes some of it: 'key=[a,b]'"
        ) from None
    return text.strip('\'"') if isinstance(value, str) else value


def _has_dict(text: str) -> bool:
    return text.startswith(('dict(', '{')) or (text.startswith(('[', '(')) and ('dict(' in text or '{' in text))


def _parse_literal(text: str, option: str) -> Any:
    """By Python's syntax, in which only literals, words and calls of dict mean something."""
    try:
        return _evaluate(ast.parse(text, mode='eval').body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise UserError(
            f"--cfg-options {option}: {text!r} can't be read; expected numbers, words, 'quoted texts', [lists] and "
            'dict(key=value) of them. Put the whole option in quotes, and text that is no word in quotes of its own: '
            '"visualizer.vis_backends=[dict(type=LocalVisBackend, save_dir=\'/runs/a\')]"'
        ) from None


def _evaluate(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return _BARE_WORDS.get(node.id.lower(), node.id)
    if isinstance(node, ast.Attribute):
        return f'{_evaluate(node.value)}.{node.attr}'
    if isinstance(node, ast.List):
        return [_evaluate(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_evaluate(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        return {_evaluate(_given(key)): _evaluate(item) for key, item in zip(node.keys, node.values)}
    if isinstance(node, ast.Call):
        if not (isinstance(node.func, ast.Name) and node.func.id == 'dict' and not node.args):
            raise ValueError
        return {_given(word.arg): _evaluate(word.value) for word in node.keywords}
    return ast.literal_eval(node)


def _given(key: Any) -> Any:
    """None is what `**` leaves in the place of a key."""
    if key is None:
        raise ValueError
    return key
