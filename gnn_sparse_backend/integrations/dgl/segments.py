"""Operators of DGL on rows that belong to segments or relations: reductions (readouts), and products with a matrix
each.

``_segment_reduce`` is below DGL's autograd, whose gradients of it stay: they copy one row per element, or scatter one
per chosen element. Readouts of few elements are taken over with their gradients. For the products DGL's path on the CPU
loops over segments, or copies a matrix for every row; these are taken over with their gradients.
"""

from __future__ import annotations

from math import isfinite

import torch
from dgl.backend import replace_inf_with_zero
from torch import Tensor

from ...ops.grouped.api import gather_mm as grouped_mm
from ...ops.grouped.segment_reduce import run_segment_reduce
from ...ops.message.message_op import message_op
from ...planner.cpu.listed import FEW
from ...runtime import devices
from ...structures.checks import read
from ...structures.csr import EdgeList
from ...structures.segments import Segments
from ..core.handles import Handles
from ..core.refusal import Refusal
from ..few import operators
from .lazy_edges import computed
from .operands import is_index, refuse

KEPT = Handles()
"""The rows of each relation, by the tensor that says which relation a row belongs to, or of lengths."""
_BELOW = Refusal("segment_reduce")
_READOUTS = {
    reduce: message_op("x0", ("edge",), reduce, ties)
    for reduce, ties in (("sum", None), ("mean", None), ("max", "first"), ("min", "first"))
}


def readout(seglen, value, reducer="sum"):
    """``dgl.ops.segment_reduce`` of few elements: (segments, ...) of (elements, ...) and the lengths of segments."""
    of = _READOUTS.get(reducer)
    if of is None or not is_few(reducer, value, None) or not value.numel() or torch.is_autocast_enabled():
        return _BELOW
    if not is_index(seglen) or not seglen.is_cpu:
        return _BELOW
    count = value.shape[0]
    edges = KEPT.once(seglen, ("list", count), lambda: _listed(seglen, count))
    # DGL's gradient of the maximum of no elements goes to nobody
    if edges is None or (of.ties is not None and not KEPT.once(seglen, "none empty", lambda: bool((seglen > 0).all()))):
        return _BELOW
    found = operators.aggregated(edges, of, (value,))
    if found is None:
        return _BELOW
    if of.ties is not None and not isfinite(found.detach().sum()):
        found = replace_inf_with_zero(found)
    return found, "segment_reduce"


def below_autograd(op, feat, offsets):
    """``_segment_reduce``: ``(op, feat, offsets) -> (out, rows chosen by max and min)`` without gradients."""
    return _refuse_reduce(op, feat, offsets) or (run_segment_reduce(op, feat, offsets), "segment_reduce")


def above_autograd(op, x, offsets):
    """``segment_reduce`` of DGL's backend, an autograd function: lazy tensors are computed before it."""
    return _BELOW


def is_few(op, feat, offsets) -> bool:
    """Whether there are so few elements that a kernel of ours is not what takes time."""
    return type(feat) is Tensor and feat.numel() <= FEW.features


def segment_mm(A, B, seglen_A):
    """``segment_mm`` of DGL's backend: ``(A, B, seglen_A) -> (N, F_out)`` from (N, F_in), (S, F_in, F_out) and (S,)."""
    A = computed(A, "segment_mm")
    segments = _refuse_mm(A, B) or _segments_of_lengths(A, B, seglen_A)
    return segments if type(segments) is Refusal else (grouped_mm(A, B, segments), "segment_mm")


def gather_mm(a, b, *, idx_b):
    """``dgl.ops.gather_mm``: ``(a, b, idx_b=(N,)) -> (N, F_out)`` from (N, F_in) and (R, F_in, F_out)."""
    a = computed(a, "gather_mm")
    segments = _refuse_mm(a, b) or _segments_of(a, b, idx_b)
    return segments if type(segments) is Refusal else (grouped_mm(a, b, segments), "gather_mm")


def _listed(lengths: Tensor, count: int) -> EdgeList | None:
    """The segment of each of ``count`` elements; None where the lengths are not theirs."""
    try:
        segments = torch.repeat_interleave(lengths.long(), output_size=count)
    except RuntimeError:
        return None
    return EdgeList(segments, segments, (lengths.shape[0],) * 2)


def _segments_of(a: Tensor, b: Tensor, index) -> Segments | Refusal:
    if not is_index(index) or index.device != a.device or index.shape[0] != a.shape[0]:
        return Refusal("the index is not one integer per row")
    relations = b.shape[0]
    try:
        return KEPT.once(index, relations, lambda: Segments.from_index(index, relations))
    except ValueError:
        return Refusal("an index is out of range")


def _segments_of_lengths(a: Tensor, b: Tensor, lengths) -> Segments | Refusal:
    """lengths: on the device of the rows, or, as DGL wants them for a GPU, on the CPU."""
    if not is_index(lengths) or (not lengths.is_cpu and lengths.device != a.device) or lengths.shape[0] != b.shape[0]:
        return Refusal("the lengths are not one integer per matrix")
    rows, device = a.shape[0], a.device
    try:
        return KEPT.once(lengths, (rows, device), lambda: Segments.from_lengths(lengths.to(device), rows))
    except ValueError:
        return Refusal("the lengths do not sum to the number of rows")


def _refuse_reduce(op: str, feat, offsets) -> Refusal | None:
    if op not in ("sum", "max", "min"):
        return Refusal("unknown reduce")
    if (refusal := refuse(feat)) is not None:
        return refusal
    if not is_index(offsets) or offsets.device != feat.device or not offsets.numel():
        return Refusal("the offsets are no vector of integers")
    # DGL makes offsets at every readout: a GPU would be waited for at each, and looks at them itself
    if not devices.on_cpu(offsets.device):
        return None
    first, last, falling = read(offsets[0], offsets[-1], (offsets[1:] < offsets[:-1]).any())
    if first != 0 or last != feat.shape[0] or falling:
        return Refusal("the lengths do not sum to the number of rows")
    return None


def _refuse_mm(a, b) -> Refusal | None:
    if not isinstance(b, Tensor):
        return Refusal("missing feature")
    if (refusal := refuse(a) or refuse(b)) is not None:
        return refusal
    if a.dtype is not b.dtype or a.device != b.device:
        return Refusal("operands of two types or devices")
    if a.dim() != 2 or b.dim() != 3 or a.shape[1] != b.shape[1]:
        return Refusal("the shapes do not fit")
    return Refusal("no rows") if 0 in (a.shape[0], b.shape[0]) else None
