"""Products by relation, by group and by offset: rows are sorted by their matrix, and multiplied by it together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ...runtime.without_kernels import defines
from ...structures.kernel_map import RelGraphOf
from .messages import added, wide_of


def _by_relation(rel: Any) -> tuple[Tensor, ...]:
    """The edges of each relation."""
    relation = rel.relation.long()
    return relation.argsort(stable=True).split(torch.bincount(relation, minlength=rel.num_relations).tolist())


def _ends(rel: Any, transposed: bool) -> tuple[Tensor, Tensor]:
    """(edges,) at which row of x an edge begins, and at which of g it ends."""
    ends = rel.source.long(), rel.destination.long()
    return ends[::-1] if transposed else ends


def _weights(rel: Any, a: Tensor | None, mean: bool, dtype: torch.dtype) -> Tensor | None:
    """(edges, 1) what an edge is multiplied by."""
    factors = [x.to(dtype) for x in (a, rel.mean_scale(dtype) if mean else None) if x is not None]
    return torch.stack(factors).prod(0).unsqueeze(1) if factors else None


def _scaled(x: Tensor, weights: Tensor | None, edges: Tensor) -> Tensor:
    return x if weights is None else x * weights[edges]


def _times(x: Tensor, w: Tensor) -> Tensor:
    """(n, blocks * F_out) from x (n, blocks * F_in) and the blocks on a diagonal, w (blocks, F_in, F_out)."""
    return torch.einsum("nbi,bio->nbo", x.reshape(x.shape[0], *w.shape[:2]), w).flatten(1)


@defines("rgms_product")
def product(rel: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """(rows, F_out) the rows of x times the matrices of relations, summed over edges."""
    (x, w, a), (mean, transposed, *_) = operands, attributes
    assert x is not None and w is not None
    wide, (begin, end) = wide_of(x), _ends(rel, transposed)
    weights, rows = _weights(rel, a, mean, wide), rel.shape[1 if transposed else 0]
    found = x.new_zeros((rows, w.shape[1] * w.shape[3]), dtype=wide)
    for edges, matrix in zip(_by_relation(rel), w.to(wide)):
        found = found + added(rows, end[edges], _scaled(_times(x[begin[edges]].to(wide), matrix), weights, edges))
    return found.to(x.dtype)


@defines("rgms_sum")
def outer_sums(rel: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """(relations, blocks, F_in, F_out) the outer products of both ends of a relation's edges, summed."""
    (x, g, a), (blocks, mean, transposed) = operands, attributes
    assert x is not None and g is not None
    wide, (begin, end) = wide_of(x), _ends(rel, transposed)
    weights = _weights(rel, a, mean, wide)
    widths = [(blocks, each.shape[1] // blocks) for each in (x, g)]
    sums = []
    for edges in _by_relation(rel):
        near = _scaled(x[begin[edges]].to(wide), weights, edges).reshape(edges.numel(), *widths[0])
        far = g[end[edges]].to(wide).reshape(edges.numel(), *widths[1])
        sums.append(torch.einsum("nbi,nbo->bio", near, far))
    empty = x.new_zeros((0, blocks, widths[0][1], widths[1][1]))
    return torch.stack(sums).to(x.dtype) if sums else empty


@defines("rgms_dot")
def dots(rel: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """(edges,) the dot product of both ends, behind the matrix of the relation, in the type of sums."""
    (x, w, g), (mean, transposed) = operands, attributes
    wide, (begin, end) = wide_of(x), _ends(rel, transposed)
    weights = _weights(rel, None, mean, wide)
    by_relation = _by_relation(rel)
    parts = []
    for edges, matrix in zip(by_relation, w.to(wide)):
        each = (_times(x[begin[edges]].to(wide), matrix) * g[end[edges]].to(wide)).sum(1, keepdim=True)
        parts.append(_scaled(each, weights, edges).squeeze(1))
    return _unsorted(by_relation, parts, x.new_zeros(rel.num_edges, dtype=wide))


def _unsorted(places: Sequence[Tensor], parts: Sequence[Tensor], empty: Tensor) -> Tensor:
    """The parts one after the other, each row in its place; ``empty`` where there is none."""
    return torch.cat(list(parts))[torch.cat(list(places)).argsort()] if parts else empty


def _mixed(comp: Tensor, bases: Tensor) -> Tensor:
    """(relations, 1, F_in, F_out) the matrices that combinations of bases are, in the type of sums."""
    wide = wide_of(bases)
    return torch.einsum("rb,bio->rio", comp.to(wide), bases.to(wide)).unsqueeze(1)


@defines("rgms_basis_product")
def basis_product(rel: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """`product` of combinations of bases."""
    x, comp, bases, a = operands
    assert comp is not None and bases is not None
    return product(rel, (x, _mixed(comp, bases), a), attributes)


@defines("rgms_basis_dot")
def basis_dots(rel: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """`dots` with combinations of bases."""
    x, comp, bases, g = operands
    return dots(rel, (x, _mixed(comp, bases), g), attributes)


@defines("rgms_basis_sums")
def basis_sums(rel: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """(relations, bases) and (bases, F_in, F_out): what flows back to both parts of combinations."""
    x, comp, bases, a, g = operands
    assert x is not None and comp is not None and bases is not None and g is not None
    wide = wide_of(x)
    sums = outer_sums(rel, (x.to(wide), g.to(wide), a), (1, *attributes)).squeeze(1)
    by_comp = torch.einsum("rio,bio->rb", sums, bases.to(wide))
    return by_comp.to(x.dtype), torch.einsum("rb,rio->bio", comp.to(wide), sums).to(x.dtype)


@defines("sparse_conv")
def convolution(kernel_map: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """A sparse convolution, whose offsets are relations."""
    return product(kernel_map.derived(RelGraphOf()), (*operands, None), (False, False))


@defines("sparse_conv_weight")
def convolution_weight(kernel_map: Any, operands: Sequence[Tensor], attributes: Sequence[Any]) -> Tensor:
    """The gradient of its weight."""
    return outer_sums(kernel_map.derived(RelGraphOf()), (*operands, None), (*attributes, False, False))


def _by_segment(segments: Any, a: Tensor, at: Tensor | None) -> Iterator[tuple[Tensor, Tensor]]:
    """(the rows of each segment, those of ``a`` that stand for them, in the type of sums)."""
    rows = torch.arange(segments.num_rows, device=a.device) if segments.order is None else segments.order.long()
    for each in rows.split(segments.offsets.diff().tolist()):
        yield each, a[each if at is None else at[each].long()].to(wide_of(a))


@defines("grouped_mm")
def grouped_product(segments: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """(rows, F_out) the rows of a times the matrix of their segment."""
    a, w, at = operands
    assert a is not None and w is not None
    places, parts = [], []
    for (rows, near), matrix in zip(_by_segment(segments, a, at), w):
        places.append(rows)
        parts.append((near @ matrix.to(near.dtype)).to(a.dtype))
    return _unsorted(places, parts, a.new_zeros((segments.num_rows, w.shape[2])))


@defines("grouped_sum")
def grouped_sum(segments: Any, operands: Sequence[Tensor | None], attributes: Sequence[Any]) -> Tensor:
    """(segments, F_in, F_out) the outer products of the rows of each segment, summed."""
    a, g, at = operands
    assert a is not None and g is not None
    sums = [(near.t() @ g[rows].to(near.dtype)).to(a.dtype) for rows, near in _by_segment(segments, a, at)]
    return torch.stack(sums) if sums else a.new_zeros((0, a.shape[1], g.shape[1]))
