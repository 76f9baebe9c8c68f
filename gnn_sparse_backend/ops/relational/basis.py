"""RGMS whose matrices are combinations of bases: forward only, no autograd, operands already validated.

Relation r has the matrix W[r] = sum over b of comp[r, b] * bases[b] (Schlichtkrull et al., 2018, equation 3). With T =
sum over edges e of A[e] * <X[j(e)] W[r(e)], G[i(e)]> these are the product by G, the dots by A, and the sums by comp
and by bases,

    comp'[r, b] = <W'[r], bases[b]>      bases'[b] = sum over r of comp[r, b] * W'[r]      W'[r]: the sum of outer
    products

Matrices, and sums of outer products, are there for a few relations at a time (``MATRIX_BYTES``), whatever the number of
relations: what those send is added to the result, and the next ones take their place. They are mixed by one dense
product. Mixing in the kernels, where a panel of pairs needs its matrix, would cost each panel of up to 16 pairs as much
as a product with as many rows as there are bases, and again in each task.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ...planner.cpu.relational import relations_at_a_time
from ...runtime.type_names import accumulator_of
from ...structures.relational.graph import RelGraph
from ...structures.relational.parts import RelationPart, relation_parts
from ..core.operands import autocasts
from .executables import run_dot, run_product, run_sum


def _as_given(run: Callable) -> Callable:
    """Dense products in the types of their operands, whatever the caller's autocast says."""

    @functools.wraps(run)
    def unconverted(rel: RelGraph, x: Tensor, *more):
        if not autocasts(x):
            return run(rel, x, *more)
        with torch.autocast(x.device.type, enabled=False):
            return run(rel, x, *more)

    return unconverted


@_as_given
def run_basis_product(
    rel: RelGraph, x: Tensor, comp: Tensor, bases: Tensor, a: Tensor | None, mean: bool, transposed: bool
) -> Tensor:
    """``Y[i] = sum over edges e into i of a[e] * x[j(e)] @ W[r(e)]``: (rows, F_out). comp: (relations, B), bases: (B,
    F_in, F_out).
    """
    parts = _parts(rel, bases)
    if len(parts) == 1:
        (part,) = parts
        return run_product(part.graph, x, _mixed(part, comp, bases), part.of_edges(a), mean, transposed)
    total = x.new_zeros((rel.side(transposed).sizes[0], bases.shape[2]), dtype=accumulator_of(x.dtype))
    for part in parts:
        run_product(part.graph, x, _mixed(part, comp, bases), part.of_edges(a), mean, transposed, total=total)
    return total.to(x.dtype)


@_as_given
def run_basis_dot(
    rel: RelGraph, x: Tensor, comp: Tensor, bases: Tensor, g: Tensor, mean: bool, transposed: bool
) -> Tensor:
    """``c[e] = <x[j(e)] @ W[r(e)], g[i(e)]>`` in the user's edge order and the accumulation type: (edges,)."""
    out = x.new_zeros(rel.num_edges, dtype=accumulator_of(x.dtype))
    for part in _parts(rel, bases):
        found = run_dot(part.graph, x, _mixed(part, comp, bases), g, mean, transposed)
        if part.edges is None:
            return found
        out.index_copy_(0, part.edges, found)
    return out


@_as_given
def run_basis_sums(
    rel: RelGraph, x: Tensor, comp: Tensor, bases: Tensor, a: Tensor | None, g: Tensor, mean: bool, transposed: bool
) -> tuple[Tensor, Tensor]:
    """comp' (relations, B) and bases' (B, F_in, F_out), as above."""
    wide = accumulator_of(x.dtype)
    by_comp, by_bases = comp.new_zeros(comp.shape, dtype=wide), bases.new_zeros(bases.shape, dtype=wide)
    rows, flat = by_bases.flatten(1), bases.flatten(1).to(wide)
    for part in _parts(rel, bases):
        sums = run_sum(part.graph, x, g, 1, part.of_edges(a), mean, transposed, dtype=wide).flatten(1)
        found = sums @ flat.t()
        by_comp = found if part.relations is None else by_comp.index_copy_(0, part.relations, found)
        rows.addmm_(part.of_relations(comp).to(wide).t(), sums)
    return by_comp.to(x.dtype), by_bases.to(x.dtype)


def _parts(rel: RelGraph, bases: Tensor) -> tuple[RelationPart, ...]:
    count, in_features, out_features = bases.shape
    return relation_parts(
        rel, relations_at_a_time(count, in_features, out_features, accumulator_of(bases.dtype).itemsize)
    )


def _mixed(part: RelationPart, comp: Tensor, bases: Tensor) -> Tensor:
    """(relations, 1, F_in, F_out): the matrices of a part's relations."""
    return (part.of_relations(comp) @ bases.flatten(1)).unflatten(1, (1, *bases.shape[1:]))
