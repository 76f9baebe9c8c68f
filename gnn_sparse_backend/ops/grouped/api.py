"""``gsb.segment_mm`` and ``gsb.gather_mm``: rows times the matrix of the relation that each belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from ...formats.counts import prefix_sums
from ...runtime.devices import check_kernels
from ...runtime.memory import check_written_out as check_array_written_out
from ...structures.build import index_dtype
from ...structures.checks import check_integers
from ...structures.segments import Segments
from ...structures.unsynchronised import index_in_range, segments_of_index, segments_of_lengths
from ..core.operands import check_dense, check_traced, check_written_out, is_plain, one_type
from ..core.traced import Traced
from .operators import ORDER_BY_SEGMENT, grouped_mm, traced_segments


def segment_mm(a: Tensor, b: Tensor, seglen: Tensor | Segments) -> Tensor:
    """``out[n] = a[n] @ b[s]`` for every row n of segment s: one matrix product per segment.

    Args:
        a: (N, F_in), the rows of segment 0, then those of segment 1, and so on.
        b: (S, F_in, F_out), a matrix for each segment, of the type of ``a``: float32, float64, bfloat16 or float16.
        seglen: (S,) lengths of the segments, integers that sum to N; or ``Segments``, whose rows may be in any order.
            Lengths are checked and shared out at every call, ``Segments`` once.

    Returns:
        (N, F_out), contiguous, in the type of the operands. Sums are accumulated in at least float32; the gradient of
        ``b`` is the same at every run and for any number of threads. Gradients of any order flow to ``a`` and ``b``.

    Under autocast the operands are cast to its type, as PyTorch does for matrix products.

    A call does not wait for a GPU, forward or backward: it launches as many blocks as N rows in S segments may need at
    most. (With ``Segments`` the first call waits, and later ones launch what they need.) So lengths on a GPU are
    checked by the GPU: if they do not sum to N, no kernel leaves its operands, and the run ends with a device-side
    assertion at the next synchronisation, as with an index out of range in PyTorch. ``Segments.from_lengths(lengths,
    N)`` waits, and raises ValueError. Lengths on the CPU are checked there.

    Raises:
        TypeError: an operand is not a dense floating tensor, or types differ.
        ValueError: shapes do not fit, or the lengths do not sum to N.
    """
    a, b = _checked("segment_mm", a, b)
    if not is_plain(a, b) or not _has_values(seglen):
        check_traced_indices("segment_mm", ("a", "b"), (a, b), seglen=seglen)
        return grouped_mm(_traced_lengths(seglen), a, b)
    segments = (
        seglen
        if isinstance(seglen, Segments)
        else _named("segment_mm", segments_of_lengths, seglen, a.shape[0], a.device)
    )
    _check_sizes("segment_mm", segments, a, b, a.shape[0])
    return grouped_mm(segments, a, b)


def gather_mm(a: Tensor, b: Tensor, idx_b: Tensor | Segments, idx_a: Tensor | None = None) -> Tensor:
    """``out[n] = a[n] @ b[idx_b[n]]``, or ``a[idx_a[n]] @ b[idx_b[n]]``, without a copy of any matrix per row.

    Args:
        a: (N, F_in), or of any number of rows where ``idx_a`` is given.
        b: (R, F_in, F_out), of the type of ``a``.
        idx_b: (N,) integers in [0, R): the relation of each row, in any order; or ``Segments.from_index(idx_b, R)``,
            which is worth making once for rows that are used again: the rows of a relation are then found once.
        idx_a: None, or (N,) integers: which row of ``a`` stands for each.

    Returns, raises: as ``segment_mm``. Indices on a GPU are checked by the GPU, without a wait, as lengths are there.
    """
    a, b = _checked("gather_mm", a, b)
    if not is_plain(a, b) or not _has_values(idx_b) or not _has_values(idx_a):
        check_traced_indices("gather_mm", ("a", "b"), (a, b), idx_b=idx_b, idx_a=idx_a)
        a = a if idx_a is None else a.index_select(0, _traced_index("idx_a", idx_a))
        return grouped_mm(_traced_order(idx_b, b.shape[0]), a, b)
    segments = (
        idx_b if isinstance(idx_b, Segments) else _named("gather_mm", segments_of_index, idx_b, b.shape[0], a.device)
    )
    at = None
    if idx_a is not None:
        at = _named("gather_mm", index_in_range, "idx_a", idx_a, a.shape[0], "rows of a", a.device)
        at = at.to(index_dtype((a.shape[0], 0), at.numel()))
    rows = a.shape[0] if at is None else at.numel()
    _check_sizes("gather_mm", segments, a, b, rows, "; idx_a says which row of a stands for each" * (at is None))
    return grouped_mm(segments, a, b, at)


def _checked(operator: str, a, b) -> tuple[Tensor, Tensor]:
    """(a, b) as operands of one type, that of autocast where it is on."""
    check_dense(operator, "a", a)
    check_dense(operator, "b", b)
    if a.dim() != 2:
        raise ValueError(f"{operator}: a must have shape (N, F_in), got {tuple(a.shape)}")
    if b.dim() != 3:
        raise ValueError(f"{operator}: b must have shape (relations, F_in, F_out), got {tuple(b.shape)}")
    if a.shape[1] != b.shape[1]:
        raise ValueError(
            f"{operator}: the rows of a {tuple(a.shape)} and the matrices of b {tuple(b.shape)} do not fit: "
            f"{a.shape[1]} against {b.shape[1]}"
        )
    if a.device != b.device:
        raise ValueError(f"{operator}: a is on {a.device} but b is on {b.device}; move one of them")
    if a.device.type not in ("cpu", "meta"):
        check_kernels(operator, a.device)
    a, b = one_type(operator, {"a": a, "b": b})
    return a, b


def _check_sizes(operator: str, segments: Segments, a: Tensor, b: Tensor, rows: int, remedy: str = "") -> None:
    check_written_out(operator, "a", a)
    check_written_out(operator, "b", b)
    if segments.num_segments != b.shape[0]:
        raise ValueError(f"{operator}: b has {b.shape[0]} matrices, but there are {segments.num_segments} segments")
    _check_segments(operator, segments, "the operand", a, rows, remedy)


def _check_segments(operator: str, segments: Segments, name: str, x: Tensor, rows: int, remedy: str = "") -> None:
    if segments.num_rows != rows:
        raise ValueError(f"{operator}: {segments.num_rows} rows belong to segments, but {name} has {rows}{remedy}")
    if segments.offsets.device != x.device:
        raise ValueError(
            f"{operator}: the segments are on {segments.offsets.device}, but {name} is on {x.device}; move them with "
            f".to({str(x.device)!r})"
        )


def _named(operator: str, make, *arguments):
    try:
        return make(*arguments)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{operator}: {error}") from None


def check_traced_indices(operator: str, names: tuple[str, ...], operands: tuple[Tensor, ...], **indices) -> None:
    """What can be asked of a call whose values cannot be read: `check_traced`, and that its indices are integers."""
    for name, index in indices.items():
        if isinstance(index, Tensor):
            check_integers(f"{operator}: {name}", index)
        check_traced(operator, names, operands, _device_of(index, operands[0]))


def _device_of(index, x: Tensor) -> torch.device:
    """Where an index or segments are, that of ``x`` for anything else."""
    index = index.offsets if isinstance(index, Segments) else index
    return index.device if isinstance(index, Tensor) else x.device


def _has_values(index) -> bool:
    """Whether an index can be read now: not while a program is traced."""
    return not isinstance(index, Tensor) or is_plain(index)


def _traced_lengths(seglen) -> Traced:
    """What stands for segments of these lengths."""
    if isinstance(seglen, Segments):
        return traced_segments(seglen)
    return Traced((prefix_sums(_traced_index("seglen", seglen)), None))


def _traced_order(index, num_segments: int) -> Traced:
    """What stands for segments that rows in any order belong to."""
    if isinstance(index, Segments):
        return traced_segments(index)
    return Traced(ORDER_BY_SEGMENT(Traced(()), (_traced_index("idx_b", index),), (num_segments,)))


def _traced_index(name: str, index) -> Tensor:
    if not isinstance(index, Tensor) or index.dtype not in (torch.int32, torch.int64) or index.dim() != 1:
        what = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise TypeError(f"{name} must be a 1-D int32 or int64 torch tensor where a program is traced, got {what}")
    if is_plain(index):
        check_array_written_out(name, index)
    return index.long()
