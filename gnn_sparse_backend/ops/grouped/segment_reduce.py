"""``gsb.segment_reduce``: the rows of consecutive segments reduced, as aggregation over edges that no column is read
of.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.language.reduction import REDUCTIONS
from ...formats.counts import prefix_sums
from ...runtime import devices
from ...structures.segment_rows import rows_graph
from ...structures.segments import Segments
from ...structures.unsynchronised import segments_of_lengths, segments_of_offsets
from ..core.operands import check_dense, check_written_out, is_plain
from ..core.traced import Traced
from ..message.calls import run_aggregate
from ..message.checks import check_choice
from ..message.message_op import MessageText, message_op
from ..message.operators import AGGREGATE, aggregate
from .api import _check_segments, _has_values, _named, check_traced_indices

_TIES = ("even", "last", "first")
_CHOOSING = {reduce: message_op("x0", ("edge",), reduce, "first") for reduce in ("max", "min")}
_SUM = message_op("x0", ("edge",), "sum")


def segment_reduce(
    x: Tensor,
    lengths: Tensor | Segments | None = None,
    reduce: str = "sum",
    *,
    offsets: Tensor | None = None,
    ties: str = "even",
) -> Tensor:
    """``out[s] = reduce of the rows of segment s``.

    Args:
        x: (N, ...) rows in float32, float64, bfloat16 or float16, of any strides.
        lengths: (S,) lengths of the segments, integers that sum to N; or ``Segments``, whose rows may be in any order.
            Lengths are checked and shared out at every call, ``Segments`` once; as of ``segment_mm`` neither waits for
            a GPU.
        reduce: ``"sum"``, ``"mean"``, ``"prod"``, ``"max"`` or ``"min"``.
        offsets: instead of lengths, (S + 1,) with segment s at rows offsets[s] .. offsets[s + 1] - 1, from 0 to N.
        ties: who gets the gradient of equal rows under max and min, as in ``aggregate``. ``"first"`` is the rule of
            DGL's segment reduction.

    Returns:
        (S, ...), contiguous, in the type of ``x``. Sums are accumulated in at least float32. Empty segments are 0, of
        products 1; with ties ``"first"`` and ``"last"`` -inf (max) or inf (min). Gradients of any order flow to ``x``.
        Keeps its type under autocast.

    Raises:
        TypeError: ``x`` is not a dense floating tensor.
        ValueError: lengths or offsets do not fit N (where they are on a GPU, the run ends instead, as ``segment_mm``
            says), both or neither are given, or ``reduce`` or ``ties`` is unknown.
    """
    check_choice("segment_reduce", "reduce", reduce, tuple(REDUCTIONS))
    check_choice("segment_reduce", "ties", ties, _TIES)
    check_dense("segment_reduce", "x", x)
    if x.dim() == 0:
        raise ValueError("segment_reduce: x must have a row for each element, got a tensor without dimensions")
    if (lengths is None) == (offsets is None):
        raise ValueError("segment_reduce: give either lengths or offsets")
    ties = ties if REDUCTIONS[reduce].chooses else None
    if not is_plain(x) or not _has_values(lengths) or not _has_values(offsets):
        check_traced_indices("segment_reduce", ("x",), (x,), lengths=lengths, offsets=offsets)
        return _by_operator(x, lengths, offsets, reduce, ties)
    check_written_out("segment_reduce", "x", x)
    if isinstance(lengths, Segments):
        segments = lengths
        _check_segments("segment_reduce", segments, "x", x, x.shape[0])
    elif offsets is None:
        segments = _named("segment_reduce", segments_of_lengths, lengths, x.shape[0], x.device)
    else:
        segments = _named("segment_reduce", segments_of_offsets, offsets, x.shape[0], x.device)
    return aggregate(message_op("x0", ("edge",), reduce, ties), rows_graph(segments), x)


def run_segment_reduce(op: str, x: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor | None]:
    """Forward only, as a framework's kernel: (out, rows chosen by max and min, None for sums).

    The first of equal values is chosen, and NaN never is. Where nothing is, as in an empty segment, the result is -inf
    or inf and the row -1. Rows are in the type of ``offsets``, which are known to be right, or on a GPU, where that is
    promised to the GPU alone; rows after the last segment belong to none.
    """
    if devices.on_cpu(offsets.device):
        graph = rows_graph(Segments(offsets, None, x.shape[0]))
    else:
        graph = rows_graph(segments_of_offsets(offsets, x.shape[0], x.device, whole=False))
    if op == "sum":
        return run_aggregate(_SUM, graph, [x]), None
    out, chosen = run_aggregate(_CHOOSING[op], graph, [x], ("number",), -1)
    return out, chosen.to(offsets.dtype)


def _by_operator(x: Tensor, lengths, offsets, reduce: str, ties: str | None) -> Tensor:
    order = None
    if isinstance(lengths, Segments):
        offsets, order = lengths.offsets, lengths.order
    elif offsets is None:
        offsets = prefix_sums(lengths)
    indices = torch.zeros(x.shape[0], dtype=offsets.dtype, device=offsets.device)
    return AGGREGATE(Traced((offsets, indices, order, 1)), (x,), (MessageText("x0", ("edge",), reduce, ties),))
