"""Operators of libraries by their names in C++, ``torch.ops.<library>``, which other packages call without Python's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.library import Library

_LIBRARIES: dict[str, Library] = {}


def named(module: Any, *schemas: str) -> dict[str, Callable[..., Any]]:
    """The functions of a module that have the names of schemas and take their arguments, by these. A module that is
    imported later (`later`) is when one of them is called.
    """

    def calling(name: str) -> Callable[..., Any]:
        return lambda *given: getattr(module, name)(*given)

    return {schema: calling(schema.partition("(")[0]) for schema in schemas}


def register(namespace: str, operators: Mapping[str, Callable[..., Any]]) -> None:
    """Have PyTorch know functions by their schemas as ``torch.ops.<namespace>``, unless the library whose names these
    are has registered some.
    """
    if namespace in _LIBRARIES or any(hasattr(getattr(torch.ops, namespace), each.split("(")[0]) for each in operators):
        return
    library = _LIBRARIES[namespace] = Library(namespace, "FRAGMENT")
    for schema, function in operators.items():
        library.impl(library.define(schema), function, "CompositeImplicitAutograd")
