"""Values of --cfg-options: MMEngine's rules, and dicts, which its parser recurses on without end."""

from typing import Any

import pytest

from seg.config_value import parse_options, parse_value
from seg.errors import UserError


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ("[dict(type='LocalVisBackend')]", [dict(type='LocalVisBackend')]),
        # The shell has taken the quotes.
        ('[dict(type=Local, on=true, off=False, no=None)]', [dict(type='Local', on=True, off=False, no=None)]),
        ('dict(a=1, b=[1, (2, -3.5)], c=dict())', dict(a=1, b=[1, (2, -3.5)], c={})),
        ("{11: 255, (0, 0, 1): 'road'}", {11: 255, (0, 0, 1): 'road'}),
        ('(dict(type=torch.optim.SGD),)', (dict(type='torch.optim.SGD'),)),
        (' dict(a="x y") ', dict(a='x y')),
        ('/data/{car}/dict(1)', '/data/{car}/dict(1)'),
    ],
)  # fmt: skip
def test_dicts(text: str, value: Any) -> None:
    assert parse_value(text, f'k={text}') == value


@pytest.mark.parametrize(
    'text',
    [
        'dict(a=print(1))', 'dict(a=__import__("os").getpid())', 'dict(1)', 'dict(**x)', '{**x}', '{a, b}x', 'dict(a=/x)',
        '[dict(a=1]', 'dict(a=1+1)', 'dict(a=[i for i in x])', 'f(a=1)', 'a(b)c,d(', 'x[1](2)', '{[1]: 2}', 'dict(a=f"x")',
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_and_never_run(text: str) -> None:
    """Or it is a string, where nothing opens a list or a dict."""
    try:
        value = parse_value(text, f'k={text}')
    except UserError as error:
        assert str(error).startswith(f'--cfg-options k={text}: ')
        assert "'key=[a,b]'" in str(error) or 'Put the whole option in quotes' in str(error)
    else:
        assert value == text


@pytest.mark.parametrize(
    'text', ['[f(x)]', '[f(x,y)]', 'f(x,y)', '[dict(a=1]', '[a[b]c]', '[{a}b]', '(' * 99 + ')' * 98]
)
def test_brackets_without_end(text: str) -> None:
    """MMEngine's parser ends on these in a RecursionError or an AssertionError, or takes them for a list."""
    try:
        assert isinstance(parse_value(text, f'k={text}'), list)
    except UserError as error:
        assert f'--cfg-options k={text}' in str(error)


def test_all_that_is_wrong_is_noted() -> None:
    noted: list[str] = []
    assert parse_options(['a=1', 'b', 'c=[f(x,y)]', 'd=dict(x=2)'], noted) == {'a': 1, 'd': {'x': 2}}
    assert [line.partition(': ')[0] for line in noted] == ['--cfg-options b', '--cfg-options c=[f(x,y)]']
    with pytest.raises(UserError, match='b: expected key=value'):
        parse_options(['a=1', 'b'])
