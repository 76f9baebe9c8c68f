"""``gspmm`` of DGL: a binary operator on source and edge features, reduced into destinations.

``_gspmm`` is below DGL's autograd, and everything comes by there: gradients of DGL's own formulas too. Sums and means
are taken over already at ``gspmm``, above DGL's autograd: the gradient of a broadcast operand is then summed where it
is computed, and not from a tensor of one broadcast feature per edge. So are maxima of the sources' features on the CPU,
where one value per chosen edge is scattered by a kernel of ours or, where rows are short, gathered. For other maxima
DGL's formula, which scatters, is the better one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import dgl
import torch
from dgl import is_libxsmm_enabled
from dgl._sparse_ops import _gspmm as dgl_kernel
from torch import Tensor
from torch.autograd import Function

from ...ops.core.operator import Operator
from ...ops.message.calls import run_aggregate
from ...ops.message.message_op import message_op
from ...ops.message.operators import aggregate
from ...ops.message.reductions.argmax_scatter import copied_gradient, kept_choice
from ...runtime import devices
from ..core.refusal import Refusal
from ..few import operators
from ..lazy import LazyTensor, of_rows, scaled_at
from ..scopes import transformed
from .host import HOST, GraphEnd, counted_as
from .lazy_edges import belongs, combined, computed, reduce
from .operands import broadcast_of, graph_of_operands, refuse
from .sddmm import form_of
from .structure import edges_of, listed_graph_of, lists_in_order, only_graph_of

_BOTH = ("column", "edge")
MESSAGES = {
    "copy_lhs": ("x0", ("column",)),
    "copy_rhs": ("x0", ("edge",)),
    "add": ("add(x0, x1)", _BOTH),
    "sub": ("sub(x0, x1)", _BOTH),
    "mul": ("mul(x1, x0)", _BOTH),
    "div": ("div(x0, x1)", _BOTH),
}
"""DGL's operators as messages, and the places of what they read."""

TOTALS = {(op, reduce): message_op(*message, reduce) for op, message in MESSAGES.items() for reduce in ("sum", "mean")}
EXTREMES = {
    (op, reduce, ties): message_op(*message, reduce, ties)
    for op, message in MESSAGES.items()
    for reduce in ("max", "min")
    for ties in ("first", "last")
}
_BELOW = Refusal("gspmm")


def below_autograd(gidx, op, reduce_op, u, e):
    """``_gspmm``: ``(gidx, op, reduce_op, u, e) -> (v, (arg_u, arg_e))`` without gradients.

    u is (n_src, ...), e (E, ...) and v (n_dst, ...). The args are None for sums and for an operand that is not read.
    What DGL refuses is left to it, so that its users see its errors.
    """
    chooses = reduce_op in ("max", "min")
    first = e if u is None else u
    checked = _checked(gidx, op, u, e, lambda gidx: listed_graph_of(gidx, first) if chooses else only_graph_of(gidx))
    if type(checked) is Refusal:
        return checked
    graph, operands = checked
    if reduce_op == "sum":
        return (run_aggregate(TOTALS[op, "sum"], graph, operands), (None, None)), "gspmm"
    if not chooses:
        return Refusal("unknown reduce")
    return _extreme(gidx, op, reduce_op, graph, operands), "gspmm"


def above_autograd(g, op, reduce_op, lhs_data, rhs_data):
    """``dgl.ops.gspmm``: sums, means and maxima of the source with gradients; the rest comes by at ``_gspmm``."""
    if type(lhs_data) is LazyTensor or type(rhs_data) is LazyTensor:
        found = _fused(g, op, reduce_op, lhs_data, rhs_data)
        if found is not None:
            return found
    found = of_few(g, op, reduce_op, lhs_data, rhs_data)
    if found is not None:
        return found
    total = TOTALS.get((op, reduce_op))
    copied = total is None and op == "copy_lhs" and reduce_op in ("max", "min")
    # under autocast DGL converts operands first
    if (total is None and not copied) or torch.is_autocast_enabled():
        return _BELOW
    checked = _checked(g._graph, op, computed(lhs_data, "gspmm"), computed(rhs_data, "gspmm"))
    if type(checked) is Refusal:
        return _BELOW
    graph, operands = checked
    if copied:
        # on the CPU, and with edges, since without them DGL's maxima are zero
        if not graph.num_edges or not devices.on_cpu(graph.device) or transformed() is not None:
            return _BELOW
        return _COPIED(graph, operands, (EXTREMES[op, reduce_op, ties(operands)],)), "gspmm"
    if op in ("add", "sub") and torch.is_grad_enabled() and all(x.requires_grad for x in operands):
        operands = [_Tied.apply(x, other) for x, other in zip(operands, reversed(operands))]
    return aggregate(total, graph, *operands), counted_as(reduce_op)


def of_few(g, op: str, reduce_op: str, u, e) -> tuple[Tensor, str] | None:
    """Return (result, name to count it by) on a graph of a few edges; None on others, and of what is not ours there."""
    operands = (u,) if op == "copy_lhs" else (e,) if op == "copy_rhs" else (u, e)
    if (of := TOTALS.get((op, reduce_op))) is None:
        if len(operands) != 1 or reduce_op not in ("max", "min") or type(operands[0]) is not Tensor:
            return None
        if not lists_in_order(g._graph):
            return None
        of = EXTREMES[op, reduce_op, ties(operands)]
    elif op in ("add", "sub") and torch.is_grad_enabled() and all(getattr(x, "requires_grad", 1) for x in operands):
        return None  # `_Tied`
    edges = edges_of(g._graph, operands[0])
    if edges is None or (len(operands) == 2 and not broadcast_of(op, *operands)):
        return None
    found = operators.aggregated(edges, of, operands)
    return None if found is None else (found, counted_as(reduce_op))


class _Tied(Function):
    """An operand of a sum, whose gradient depends on the other one in DGL's formulas, though not in its values: who
    differentiates that gradient finds zeros, and no error."""

    @staticmethod
    def forward(ctx, x, other):
        ctx.other = other
        return x.detach()

    @staticmethod
    def backward(ctx, grad):
        return (_Tie.apply(grad, ctx.other) if torch.is_grad_enabled() else grad), None


class _Tie(Function):
    @staticmethod
    def forward(ctx, grad, other):
        return grad.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def _fused(g, op: str, reduce_op: str, u: Tensor | None, e: Tensor | None) -> tuple[Tensor, str] | Refusal | None:
    """Features of sources, edges or both, of which one is lazy, reduced as ``reduced`` gives it; None as there."""
    if torch.is_autocast_enabled() or reduce_op not in ("sum", "mean", "max", "min") or op not in MESSAGES:
        return None
    graph = only_graph_of(g._graph)
    if graph is None:
        return None
    if op != "copy_rhs":
        if type(u) is LazyTensor:
            scaled = scaled_at(u, HOST, GraphEnd(graph, 1)) if of_rows(u) else None
            u = computed(u, "gspmm") if scaled is None else scaled
        elif refuse(u) is not None or u.shape[0] != graph.shape[1]:
            return None
    if op != "copy_lhs":
        if type(e) is LazyTensor:
            e = e if belongs(e, graph) else computed(e, "gspmm")
        elif refuse(e) is not None or e.shape[0] != graph.num_edges:
            return None
    if LazyTensor not in (type(u), type(e)):
        return None
    operands = (u,) if op == "copy_lhs" else (e,) if op == "copy_rhs" else (u, e)
    if len(operands) == 1:
        return reduce(graph, operands[0], reduce_op, ties(operands))
    message = combined(graph, op, (u, "column"), (e, "edge"), form_of(op, "u", "e"), True)
    return None if message is None else reduce(graph, message, reduce_op, ties(operands))


def _record_copied(graph, operands, attributes, needed):
    (of,) = attributes
    choice = kept_choice(of, graph, operands)
    out, kept = run_aggregate(of, graph, operands, (choice,), 0 if choice == "column" else -1)
    return out, (kept,), choice


def _gradient_of_copied(graph, attributes, saved, choice: str, needed, grad: Tensor) -> list[Tensor]:
    (of,), (kept,) = attributes, saved
    if choice == "column":
        return [copied_gradient(kept, grad, graph.shape[1])]
    gradient = of.gradient(0)
    given = {"cotangent": grad, "number": None, "chosen": kept}
    out = aggregate(gradient.form, graph.transpose(), *(given[source] for source in gradient.sources))
    if int(kept.min()) < 0:
        out = out.index_add(0, kept.new_zeros(1), grad.masked_fill(kept >= 0, 0).sum(0, keepdim=True))
    return [out]


_COPIED = Operator(
    "copied_extreme",
    lambda graph, operands, attributes: run_aggregate(*attributes, graph, operands),
    _gradient_of_copied,
    _record_copied,
)
"""DGL's gradient: what comes back to a number that was taken from nobody goes to source 0, as DGL's arrays have it.
Attributes: (message,).
"""


def _checked(gidx, op: str, u: Tensor | None, e: Tensor | None, find: Callable = only_graph_of) -> tuple | Refusal:
    """(graph, operands). find: the graph of an index."""
    if op not in MESSAGES:
        return Refusal("unknown op")
    x, y = (u, None) if op == "copy_lhs" else (e, None) if op == "copy_rhs" else (u, e)
    graph = graph_of_operands(gidx, op, MESSAGES[op][1], x, y, find)
    return graph if type(graph) is Refusal else (graph, (x,) if y is None else (x, y))


def _extreme(gidx, op: str, reduce: str, graph, operands: tuple[Tensor, ...]) -> tuple:
    """The maximum or minimum with the sources and the edges that it came from, as DGL returns them."""
    wanted = ("column", "number") if len(operands) == 2 else ("column",) if op == "copy_lhs" else ("number",)
    out, *args = run_aggregate(EXTREMES[op, reduce, ties(operands)], graph, operands, wanted)
    if graph.num_edges == 0:
        out.zero_()  # DGL does not run its kernel then
    index = getattr(torch, gidx.dtype)
    args = [a.to(index) for a in args]
    if len(operands) == 2:
        u, e = operands
        scalar = u.dim() == 1, e.dim() == 1
        # DGL gives scalars a feature dimension, which stays if the other operand has one
        args = [a.squeeze(-1) if one and a.dim() > 1 else a for a, one in zip(args, scalar)]
        return out, tuple(args)
    return out, (args[0], None) if op == "copy_lhs" else (None, args[0])


def ties(operands: tuple[Tensor, ...]) -> str:
    """Which of equal messages DGL's kernels choose: measured on the CPU, where it depends on the kernel that they take.

    Just-in-time code (libxsmm: float32 and bfloat16, features of one shape, on processors with AVX-512) takes the last,
    all other kernels, and those for CUDA, the first.
    """
    first = operands[0]
    if not devices.on_cpu(first.device) or not is_libxsmm_enabled():
        return "first"
    if len(operands) == 2 and (first.shape[1:] or (1,)) != (operands[1].shape[1:] or (1,)):
        return "first"
    return _jit_ties(first.dtype)


@functools.cache
def _jit_ties(dtype: torch.dtype) -> str:
    """What DGL itself chooses here, of two equal messages of one shape."""
    index = dgl.graph(([0, 1], [0, 0]))._graph
    chosen = dgl_kernel(index, "copy_lhs", "max", torch.zeros(2, 1, dtype=dtype), None)[1][0]
    return ("first", "last")[int(chosen[0, 0])]
