"""What can stand at a place of a config. `seg.config_schema.check` walks a config along these."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seg.config_schema.arguments import Argument, Arguments


@dataclass(frozen=True)
class Value:
    """Plain data, as the annotation says."""

    annotation: Any


@dataclass(frozen=True)
class Name:
    """The bare name of something registered."""

    registry: str


@dataclass(frozen=True)
class Typed:
    """A dict whose `type` names what is built with its other keys as arguments, or what has been built already.

    default: the type where the dict names none, worked out from the dict if it is a function.
    supplied: arguments that whoever builds it gives; `filled`: the same, but the config may give them itself.
    parts: what stands under certain keys, also under keys that are taken out before the rest are arguments.
    guess: nobody has said that something is built here, so a name that no registry knows is no fault.
    partial: whoever builds it may give arguments that can't be known, so that none is missed.
    """

    registry: str
    default: str | Callable[[Mapping[str, Any]], str] | None = None
    supplied: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()
    parts: Mapping[str, 'Node'] = field(default_factory=dict)
    guess: bool = False
    partial: bool = False


@dataclass(frozen=True)
class Fields:
    """A dict whose keys are fixed: the arguments of a function, or `parts`. `owner` is what has them, in words."""

    owner: str
    arguments: Arguments
    parts: Mapping[str, 'Node'] = field(default_factory=dict)


@dataclass(frozen=True)
class Many:
    """A list of items, or where `alone` a single one without the list."""

    item: 'Node'
    alone: bool = False


@dataclass(frozen=True)
class Loose:
    """Any data; each dict in it that has a `type` is an item."""

    item: Typed


@dataclass(frozen=True)
class ByName:
    """A dict with any keys; None under one of them takes what is there by default away."""

    item: 'Node'


@dataclass(frozen=True)
class Pick:
    """A node that depends on the value."""

    choose: Callable[[Any], 'Node']


@dataclass(frozen=True)
class Anything:
    """Not looked at."""


Node = Value | Name | Typed | Fields | Many | Loose | ByName | Pick | Anything


def fields(owner: str, **annotations: Any) -> Fields:
    """A dict with these keys, none of which is needed."""
    return Fields(owner, Arguments({key: Argument(hint, None) for key, hint in annotations.items()}))
