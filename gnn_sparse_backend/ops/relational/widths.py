"""RGMS on node types with features of several widths: one operator for the relations of each shape of matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ...structures.relational.graph import RelGraph


def matrices_by_relation(weight: Mapping, rel: RelGraph) -> list[Tensor]:
    """The matrix of each relation, (F_in, F_out) or (blocks, F_in / blocks, F_out / blocks), in the order of the
    relations.

    Raises TypeError or ValueError where a relation has none, or one that is no matrix.
    """
    if rel.relations is None:
        raise ValueError("rgms: weight is a dict, but the relations of this graph have no names: give a tensor")
    if not rel.relations:
        raise ValueError(
            "rgms: weight is a dict, but there are no relations to say F_out: give a tensor (0, F_in, F_out)"
        )
    names = set(rel.relations)
    if weight.keys() != names:
        missing, more = [r for r in rel.relations if r not in weight], [r for r in weight if r not in names]
        raise ValueError(
            "rgms: weight must have an entry for every relation: "
            + (f"{missing[0]!r} is missing" if missing else f"{more[0]!r} is none")
        )
    for name in rel.relations:
        w = weight[name]
        if not isinstance(w, Tensor):
            raise TypeError(f"rgms: weight[{name!r}] must be a tensor, got {type(w).__name__}")
        if w.dim() not in (2, 3):
            raise ValueError(
                f"rgms: weight[{name!r}] must have shape (F_in, F_out) or (blocks, F_in / blocks, F_out / blocks), "
                f"got {tuple(w.shape)}"
            )
    matrices = [weight[name] for name in rel.relations]
    dtypes = {w.dtype for w in matrices}
    if len(dtypes) > 1:
        raise TypeError(f"rgms: the matrices of weight must be of one type, got {', '.join(sorted(map(str, dtypes)))}")
    return matrices


def sum_by_shape(
    operator: Callable, rel: RelGraph, x: Mapping, matrices: list[Tensor], edge_weight: Tensor | None
) -> dict:
    """For every destination type the sum of what relations of each shape of matrix send to it.

    operator(rel, x, w, a): of relations of one shape, where x and the result are by node type. Each runs on a graph of
    its own relations and the types at their ends (``RelGraph.of_relations``), so nothing is padded.

    Raises ValueError where a matrix does not fit its source type, or two do not agree on the width of a destination
    type.
    """
    for name, w in zip(rel.relations, matrices):
        wanted, found = w.shape[0] * (w.shape[1] if w.dim() == 3 else 1), x[name[0]].shape[-1]
        if found != wanted:
            raise ValueError(
                f"rgms: weight[{name!r}] of shape {tuple(w.shape)} takes {wanted} features, but x[{name[0]!r}] has "
                f"{found}"
            )
    widths = _widths_of_results(rel, matrices)
    shapes: dict[torch.Size, list[int]] = {}
    for number, w in enumerate(matrices):
        shapes.setdefault(w.shape, []).append(number)
    by_relation = None if edge_weight is None else edge_weight.flatten().split(list(rel.edge_counts))
    sums: dict = dict.fromkeys(rel.destination_types)
    for numbers in shapes.values():
        part = rel.of_relations(tuple(numbers))
        a = None if by_relation is None else torch.cat([by_relation[number] for number in numbers])
        found = operator(
            part, {kind: x[kind] for kind in part.source_types}, torch.stack([matrices[n] for n in numbers]), a
        )
        for kind, y in found.items():
            sums[kind] = y if sums[kind] is None else sums[kind] + y
    like = next(y for y in sums.values() if y is not None)
    return {
        kind: like.new_zeros(count, widths[kind]) if sums[kind] is None else sums[kind]
        for kind, count in rel.destination_types.items()
    }


def _widths_of_results(rel: RelGraph, matrices: list[Tensor]) -> dict[str, int]:
    """F_out of every destination type: that of the relations into it; where there are none, that of all relations."""
    into: dict[str, set[int]] = {kind: set() for kind in rel.destination_types}
    for (_, _, kind), w in zip(rel.relations, matrices):
        into[kind].add(w.shape[-1] * (w.shape[0] if w.dim() == 3 else 1))
    anywhere = set().union(*into.values())
    for kind, own in into.items():
        if len(own or anywhere) > 1:
            widths = ", ".join(map(str, sorted(own or anywhere)))
            raise ValueError(
                f"rgms: the matrices of weight must have one F_out for all relations into {kind!r}, got {widths}"
                if own
                else (
                    f"rgms: no relation into {kind!r} says its F_out, and others have {widths}: "
                    "leave the type out of the graph"
                )
            )
    return {kind: max(own or anywhere) for kind, own in into.items()}
