"""``gsb.formats.decompose``: a matrix into several formats, by a rule that looks at how full their blocks would be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..counts import at_places, distinct, prefix_sums
from ..structure import check_csr, row_of_position
from .decomposition import Decomposition, Piece
from .indices import NonZeros
from .shares import shares
from .spec import FormatSpec, key_of, parse_format, parse_formats

FILL = 0.5
"""How full a block must be: from there on, multiplying its zeros costs less than finding its non-zeros one by one."""


def decompose(matrix: Any, formats: Sequence[str] | str, *, fill: float = FILL) -> Decomposition:
    """Split a sparse matrix into formats, each non-zero into one of them.

        parts = gsb.formats.decompose(weight, ["bsr(32)", "bsr(8)", "csr"])
        print(parts.report())
        y = gsb.composed_spmm(parts, parts.values_of(weight), x)

    The rule: one format after the other takes of what is left the non-zeros of all that is at least ``fill`` full, and
    the last one takes the rest. What must be full is for ``bsr(b)``, ``bsr(r, c)`` and ``dbsr`` a block of the grid;
    for ``sr_bcrs(t, g)`` a column of t rows; for ``dia`` a diagonal; for ``ell(k)`` a row, which has at most k.
    ``csr``, ``coo`` and ``hyb(c, k)`` take all. A format that would get nothing is left out.

    Args:
        matrix: a ``gsb.Graph``, which keeps the result; a SciPy sparse matrix; a torch tensor in CSR, COO, CSC or BSR;
            or a dense one, whose zeros are left out.
        formats: words as above, in the order in which they are tried.
        fill: how full, between 0 and 1.

    Raises:
        TypeError, ValueError: quoting what is no matrix, no format, or no share.
    """
    specs = parse_formats(formats)
    if isinstance(fill, bool) or not isinstance(fill, (int, float)) or not 0 <= fill <= 1:
        raise ValueError(f"fill must be a number between 0 and 1, got {fill!r}")
    keeps = getattr(matrix, "decomposed", None)
    if callable(keeps):
        return keeps(specs, float(fill))
    return decompose_csr(*csr_of(matrix), specs, float(fill))


def csr_of(matrix: Any) -> tuple[Tensor, Tensor, None, tuple[int, int]]:
    """(indptr, indices, None, shape) of a matrix of a framework; the order of its values is that of CSR."""
    if isinstance(matrix, Tensor):
        if matrix.dim() != 2:
            raise ValueError(f"decompose: a matrix has two dimensions, got shape {tuple(matrix.shape)}")
        matrix = matrix.detach()
        shape = matrix.shape[0], matrix.shape[1]
        if matrix.layout in (torch.strided, torch.sparse_coo):
            at = matrix.nonzero().t() if matrix.layout == torch.strided else matrix.coalesce().indices()
            indptr, indices = prefix_sums(torch.bincount(at[0], minlength=shape[0])), at[1].contiguous()
        else:
            matrix = matrix if matrix.layout == torch.sparse_csr else matrix.to_sparse_csr()
            indptr, indices = matrix.crow_indices(), matrix.col_indices()
    elif all(hasattr(matrix, name) for name in ("tocsr", "shape", "nnz")):
        found = matrix.tocsr()
        indptr, indices = torch.from_numpy(found.indptr), torch.from_numpy(found.indices)
        shape = int(found.shape[0]), int(found.shape[1])
    else:
        raise TypeError(
            "decompose: expected a gsb.Graph, a torch tensor or a SciPy sparse matrix, got "
            f"{type(matrix).__name__}; numpy arrays go through torch.from_numpy"
        )
    if indptr.dtype == torch.int64 and max(*shape, indices.numel()) < 2**31:
        indptr, indices = indptr.int(), indices.int()
    return indptr, indices, None, shape


def decompose_csr(
    indptr: Tensor,
    indices: Tensor,
    edge_ids: Tensor | None,
    shape: tuple[int, int],
    specs: tuple[FormatSpec, ...],
    fill: float,
    check: bool = True,
) -> Decomposition:
    """The decomposition of a CSR structure, and that of its transpose, which it keeps. edge_ids: the number of the
    value at each position; None: its own.
    """
    indptr, indices, shape = check_csr(indptr, indices, shape, check=check)
    parts = one_side(indptr, indices, edge_ids, shape, specs, fill)
    other = transposed(parts)
    words = key_of(specs)
    made_of = indptr, indices, edge_ids, shape[1], words, fill, parts.num_slots, other.num_slots
    parts.made_of, other.made_of = (*made_of, False), (*made_of, True)
    return parts


def one_side(
    indptr: Tensor,
    indices: Tensor,
    edge_ids: Tensor | None,
    shape: tuple[int, int],
    specs: tuple[FormatSpec, ...],
    fill: float,
    rest: tuple[FormatSpec, ...] = (),
) -> Decomposition:
    """The decomposition of a CSR structure that was checked, without its transpose.

    rest: the format for what the last one leaves, if it may leave any.
    """
    rows = row_of_position(indptr, indices.numel(), torch.int64)
    columns = indices.long()
    which: Tensor | None = None  # the coordinate of each position, where these repeat or do not ascend
    keys = rows * max(shape[1], 1) + columns
    if keys.numel() and not bool((keys[1:] > keys[:-1]).all()):
        ordered, which = distinct(keys)
        rows, columns = ordered // max(shape[1], 1), ordered % max(shape[1], 1)
        indptr = prefix_sums(torch.bincount(rows, minlength=shape[0])).to(indptr.dtype)
        indices = columns.to(indices.dtype)
    from .layout import fitted  # with the compiler, which decomposing needs and a graph does not

    coordinate = which if edge_ids is None else at_places(edge_ids.long(), which)
    taken = shares(NonZeros(rows, columns, shape, fill, False, indptr.dtype), specs, rest)
    unit = math.lcm(*(spec.grid[0] for spec, _, _ in taken))
    padded_rows = -(-shape[0] // unit) * unit
    pieces: list[Piece] = []
    start = 0
    for spec, found, positions in taken:
        made = fitted(spec, found.arrays, found.slots, shape, padded_rows, indptr.dtype)
        pieces.append(Piece(spec, made[0], positions, *made[1:], start))
        start += pieces[-1].num_slots
    return Decomposition((indptr, indices, coordinate), shape, specs, fill, tuple(pieces))


def transposed(parts: Decomposition) -> Decomposition:
    """The transpose, decomposed by the same rule into the formats of the transpose; both keep each other."""

    def compute() -> Decomposition:
        rows, order = parts.rows(), _by_columns(parts)
        indptr = prefix_sums(torch.bincount(parts.indices.long(), minlength=parts.shape[1])).to(parts.indptr.dtype)
        indices = rows.index_select(0, order).to(parts.indices.dtype)
        specs = tuple(spec.transposed() for spec in parts.formats)
        shape = parts.shape[1], parts.shape[0]
        found = one_side(indptr, indices, None, shape, specs, parts.fill, rest=(parse_format("csr"),))
        coordinate = at_places(order)
        if parts.coordinate is not None:
            coordinate = coordinate.index_select(0, parts.coordinate.long())
        arrays = found.indptr, found.indices, coordinate
        found = Decomposition(arrays, shape, specs, parts.fill, found.pieces)
        if parts.made_of:  # a copy, which brought no transpose with it
            found.made_of = (*parts.made_of[:-1], not parts.made_of[-1])
        found.facts["transpose"] = parts
        found.facts["order"] = order
        return found

    return parts._kept("transpose", compute)


def _by_columns(parts: Decomposition) -> Tensor:
    """(coordinates,) their numbers in the order of columns and rows."""
    return torch.sort(parts.indices.long() * max(parts.shape[0], 1) + parts.rows()).indices


def repacking(parts: Decomposition) -> Tensor:
    """(slots of the transpose,) the slot of this one that has the value of each, and their number at padding; int64."""

    def compute() -> Tensor:
        other = transposed(parts)
        order = other.facts.get("order")
        if order is None:  # the other was there first, or has dropped its older facts
            order = _by_columns(parts)
        source = torch.cat([parts.place.index_select(0, order), parts.place.new_full((1,), parts.num_slots)])
        return source.index_select(0, other.inverse)

    return parts._kept("repacking", compute)
