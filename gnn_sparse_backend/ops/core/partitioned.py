"""What an operator calls of a structure of which this process holds a part (``gsb.distributed``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Partitioned:
    """A structure whose rows are shared out among processes.

    An operator that is given one hands itself over with its arguments: it runs on ordinary structures that the
    part is made of.
    """

    def call(self, operator: Callable[..., Any], **arguments: Any) -> Any:
        raise NotImplementedError


def check_part(name: str, graph: object) -> None:
    """Raise TypeError for what is no such structure. name: who was given it."""
    if not isinstance(graph, Partitioned):
        raise TypeError(f"{name}: graph must be a gsb.distributed.DistGraph, got {type(graph).__name__}")
