"""The operators that ``precompile`` and ``explain`` know by name: what every family prepares, and what is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping

from .. import ops
from ..ops.core.prepared import KINDS, PREPARED, Prepared, Width
from ..spelling import meant
from ..structures.graph import Graph

for _family in ops.FAMILIES:
    importlib.import_module(f"{ops.__name__}.{_family}.prepared")


def operators_named(names: str | Iterable[str]) -> tuple[Prepared, ...]:
    """The operators of these names. Raises ValueError that quotes the first that is none, and lists those there are."""
    names = dict.fromkeys((names,) if isinstance(names, str) else names)
    for name in names:
        if name not in PREPARED:
            known = "; ".join(
                f"on {kind.words}: {', '.join(o.name for o in PREPARED.values() if o.on is kind.on)}"
                for kind in KINDS.values()
            )
            raise ValueError(f"unknown operator {name!r}: choose {known}{meant(name, PREPARED)}")
    if not names:
        raise ValueError("ops names no operator")
    return tuple(PREPARED[name] for name in names)


def requested(names, features) -> dict[Prepared, tuple[Width, ...]] | None:
    """What is to be prepared at which widths; None where neither says what: then that depends on the structure
    (`Kind.default`).

    Raises ValueError for a name or a width that is none.
    """
    if names is None and not isinstance(features, Mapping):
        return None
    return widths_by_operator(features, operators_named(tuple(features) if names is None else names))


def kinds_of(names, features) -> tuple[type, ...]:
    """What the operators run on that ``requested`` gives; a graph where nobody says. Raises ValueError for a name that
    is none.
    """
    if names is None and not isinstance(features, Mapping):
        return (Graph,)
    found = operators_named(tuple(features) if names is None else names)
    return tuple(dict.fromkeys(operator.on for operator in found))


def default_for(kind: type, features) -> dict[Prepared, tuple[Width, ...]]:
    """What is prepared on structures of a kind where nobody says."""
    return widths_by_operator(features, operators_named(KINDS[kind].default))


def settled(features):
    """``features`` as they can be read more than once."""
    if isinstance(features, Mapping):
        return {name: settled(own) for name, own in features.items()}
    if isinstance(features, (str, tuple)) or not hasattr(features, "__iter__"):
        return features
    try:
        return list(features)
    except TypeError:  # a tensor without dimensions has __iter__, too
        raise TypeError(f"features must be a width, several in a list, or a dict, got {features!r}") from None


def widths_by_operator(features, operators: tuple[Prepared, ...]) -> dict[Prepared, tuple[Width, ...]]:
    """The widths of each operator. features: those of all, or a dict from the name of each to its own. Raises
    ValueError.
    """
    if not isinstance(features, Mapping):
        return {operator: operator.widths(features) for operator in operators}
    names = [operator.name for operator in operators]
    missing, more = [name for name in names if name not in features], [name for name in features if name not in names]
    if missing or more:
        raise ValueError(
            "features must have an entry for every operator in ops: "
            + (f"{missing[0]!r} is missing" if missing else f"{more[0]!r} is none of {', '.join(names)}")
        )
    return {operator: operator.widths(features[operator.name]) for operator in operators}
