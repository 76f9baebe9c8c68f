"""Everything that a program can look at, by name: each look is called with a layer built anew, and gives a tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.integrations.equality.layer import Layer


class Look(NamedTuple):
    """How a layer is looked at.

    function: gives what is seen. second: whether gradients are differentiated. compiled: whether Dynamo traces the
    layer, which takes seconds. between: whether it looks at what a layer has in between. rough: whether some of what it
    sees was rounded to bfloat16. write: whether it is about a write in place.
    """

    function: Callable[[Layer], Any]
    second: bool = False
    compiled: bool = False
    between: bool = False
    rough: bool = False
    write: bool = False


LOOKS: dict[str, Look] = {}


def look(name: str, **facts: bool):
    """Register a function as the look of that name."""

    def register(function):
        assert name not in LOOKS, name
        LOOKS[name] = Look(function, **facts)
        return function

    return register
