"""Contenders on a GPU that take turns, and what becomes of one that fails."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

from benchmarks.operators.suite import CannotDo
from benchmarks.support.gpu import timing

Ready = TypeVar("Ready")


def first_line(error: Exception) -> str:
    """The first line of what an error says, or its kind."""
    return (str(error) or type(error).__name__).splitlines()[0]


@contextlib.contextmanager
def refusals(found: MutableMapping[Any, Any], name: Any) -> Iterator[None]:
    """Inside the block a failure of ``name`` is its result, in words, and does not cost the others theirs."""
    try:
        yield
    except CannotDo as reason:
        found[name] = str(reason)
    except Exception as error:
        found[name] = f"refused: {first_line(error)}"


def in_turns(
    ready: Mapping[str, Ready], turn: Callable[[str, Ready], Mapping[str, float]], found: MutableMapping[str, Any]
) -> dict[str, dict[str, float]]:
    """Return by contender the medians of its `timing.TURNS` turns; one that fails in a turn has words in ``found``.

    turn: ``(name, what is ready)`` to the figures of a turn, by name.
    """
    turns: dict[str, list[Mapping[str, float]]] = {name: [] for name in ready}
    for _ in range(timing.TURNS):
        for name, what in ready.items():
            with refusals(found, name):
                turns[name].append(turn(name, what))
    return {
        name: {key: statistics.median(each[key] for each in taken) for key in taken[0]}
        for name, taken in turns.items()
        if len(taken) == timing.TURNS
    }
