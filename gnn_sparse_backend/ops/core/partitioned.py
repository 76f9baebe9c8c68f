"""What an operator calls of a structure of which this process holds a part (``gsb.distributed``), and what is said of
its operands for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...frozen import dataclass

F = TypeVar("F", bound=Callable[..., Any])


class Partitioned:
    """A structure whose rows are shared out among processes.

    An operator that is given one hands itself over with its arguments: it runs on ordinary structures that the
    part is made of.
    """

    def call(self, operator: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Run an operator that has `Places`. arguments: its own by name, this structure among them."""
        raise NotImplementedError


@dataclass(frozen=True)
class Places:
    """Where the operands of a public operator have their rows.

    Attributes:
        at: the operands with a row for each source, destination and edge, by the letters "u", "v" and "e" that
            ``aggregate`` has for these places. None: the argument ``operands`` has pairs of a place and a tensor.
        sums: values of ``reduce`` for which results on two halves of the edges may be added.
        of_edges: whether the result has a row for each edge, and not for each destination.
    """

    at: Mapping[str, tuple[str, ...]] | None
    sums: tuple[str, ...]
    of_edges: bool

    def operands(self, place: str, given: Mapping[str, Any]) -> dict[Any, Any]:
        """The operands at a place that are there, by their names, or by their numbers among those of a message."""
        if self.at is None:
            return {number: x for number, (of, x) in enumerate(given["operands"]) if of == place}
        return {name: given[name] for name in self.at.get(place, ()) if given[name] is not None}

    def put(self, given: Mapping[str, Any], changed: Mapping[Any, Any]) -> dict[str, Any]:
        """The arguments with some operands in the place of others."""
        if self.at is not None:
            return {**given, **changed}
        return {**given, "operands": [(of, changed.get(at, x)) for at, (of, x) in enumerate(given["operands"])]}


PLACED: dict[Callable[..., Any], Places] = {}
"""Places of the operands of those operators that run on a `Partitioned` structure."""


def placed(of_edges: bool = False, sums: tuple[str, ...] = (), **at: str) -> Callable[[F], F]:
    """Decorator: this operator runs on a `Partitioned` structure. at: names of the operands at "u", "v" and "e", with
    a space between two; none of these where the operands are pairs of a place and a tensor. The others: as in `Places`.
    """
    places = Places({place: tuple(names.split()) for place, names in at.items()} or None, sums, of_edges)

    def add(operator: F) -> F:
        PLACED[operator] = places
        return operator

    return add


def check_part(name: str, graph: object) -> None:
    """Raise TypeError for what is no such structure. name: who was given it."""
    if not isinstance(graph, Partitioned):
        raise TypeError(f"{name}: graph must be a gsb.distributed.DistGraph, got {type(graph).__name__}")
