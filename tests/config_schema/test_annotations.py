"""Which values an annotation allows, and what is said of the others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Dict, List, Literal, Optional, Tuple, TypeVar, Union  # noqa: UP035, as upstream writes them

import numpy as np
import pytest
import torch

from seg.config_schema.annotations import fits, in_words, misfit
from seg.config_schema.arguments import EMPTY, Argument

T = TypeVar('T')


@pytest.mark.parametrize(
    ('annotation', 'good', 'bad'),
    [
        (int, [0, -3], [1.0, True, '1', None, [1]]),
        (float, [1, 0.5, float('nan')], [True, '0.5', None]),
        (bool, [True, 0, 1], [2, 'yes', None]),
        (str, ['', 'x'], [1, None, ['x']]),
        (int | None, [None, 3], ['3']),
        (Optional[Union[float, Sequence[float]]], [None, 1, [1, 2.5], (1,)], ['x', ['x']]),  # noqa: UP007, UP045
        (Sequence[str], [['a'], ('a', 'b'), []], ['a', [1]]),
        (List[int], [[1], (1, 2)], [1, ['1']]),  # noqa: UP006
        (tuple[int, int], [(1, 2), [1, 2]], [(1,), (1, 2, 3), ('a', 'b')]),
        (Tuple[float, ...], [(), (1, 2, 3)], ['abc']),  # noqa: UP006
        (Sequence[Sequence[int]], [[[1], (2,)]], [[1]]),
        (list, [[1, 'a'], ()], ['ab', 1]),
        (dict, [{}, {1: 2}], [[], 'x']),
        (Dict[str, float], [{'a': 1}], [{'a': 'b'}, {1: 1}]),  # noqa: UP006
        (Mapping[int, int] | None, [{0: 1}, None], [{'0': 1}]),
        (Literal['a', 1], ['a', 1], ['b', True, 1.0]),
    ],
    ids=str,
)
def test_plain_annotations(annotation: Any, good: list, bad: list) -> None:
    assert [value for value in good if not fits(value, annotation)] == []
    assert [value for value in bad if fits(value, annotation)] == []


@pytest.mark.parametrize(
    'annotation', [Any, EMPTY, object, T, torch.nn.Module, np.ndarray, type, 'a forward reference']
)
def test_what_is_not_about_plain_data_is_never_refused(annotation: Any) -> None:
    assert all(fits(value, annotation) for value in (None, 1, 'x', [1], {'type': 'X'}))


@pytest.mark.parametrize('value', [Path('x'), np.float32(1), torch.float16, print, np.zeros(3)])
def test_objects_are_never_refused(value: Any) -> None:
    assert fits(value, int) and fits(value, str)


def test_a_value_like_a_default_that_its_annotation_excludes_is_meant() -> None:
    assert misfit(None, Argument(int, None)) is None
    assert misfit(20, Argument(str, 10)) is None
    assert misfit('x', Argument(int, None)) == 'a whole number'
    assert misfit('b', Argument(Literal['a'], 'a')) == "'a'"


@pytest.mark.parametrize(
    ('annotation', 'words'),
    [
        (int | None, 'a whole number or None'),
        (None | float, 'a number or None'),
        (int | Sequence[int], 'a whole number or a list of whole numbers'),
        (tuple[float, float], 'a list of 2 numbers'),
        (tuple[int, str], 'a list of 2'),
        (Sequence[Sequence[int]], 'a list of lists of whole numbers'),
        (str | list[str] | dict, 'text or a list of texts or a dict'),
        (Literal['norm', 'value'], "'norm' or 'value'"),
        (bool, 'True or False'),
        (torch.nn.Module | dict, 'a Module or a dict'),
    ],
    ids=str,
)
def test_in_words(annotation: Any, words: str) -> None:
    assert in_words(annotation) == words
