"""RGMS in ``torch.library``: eager calls, ``torch.compile``, fake tensors and tensor subclasses alike.

T = sum over edges e of A[e] * <X[j(e)] W[r(e)], G[i(e)]> is linear in each operand. The operators are its derivatives, and
the gradient of each by any operand is again one of them, with another operand in the place of the cotangent:

    gsb::rgms_product   by G: (rows, F_out)               grad x: product of the transpose by W^T    grad w: sum    grad a: dot
    gsb::rgms_sum       by W: (R, blocks, F_in, F_out)    grad x: product of the transpose by H^T    grad g: product    grad a: dot
    gsb::rgms_dot       by A: (edges,)                    grad x: product of the transpose by W^T    grad w: sum    grad g: product

A structure enters as its tensors, and the live ``RelGraph`` that owns them is found again at run time, with all that it
has derived; ``transposed``: x stands at the destinations. mean: A is divided by the number of edges of the relation into
the destination.
"""
from __future__ import annotations

import torch

from .checks import plain_tensor
from .operands import is_plain
from .rel_graph import RelGraph, find_live
from .rgms_kernels import run_dot, run_product, run_sum, wide_type

GRAPH = "Tensor source, Tensor destination, Tensor relation, SymInt num_sources, SymInt num_destinations, SymInt num_relations"
for _name, _operands in (("product", "Tensor x, Tensor w, Tensor? a, bool mean, bool transposed, str order"),
                         ("sum", "Tensor x, Tensor g, Tensor? a, SymInt blocks, bool mean, bool transposed"),
                         ("dot", "Tensor x, Tensor w, Tensor g, bool mean, bool transposed")):
    torch.library.define(f"gsb::rgms_{_name}", f"({GRAPH}, {_operands}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)

_ops = torch.ops.gsb
# of a structure
NO_GRADIENTS = (None,) * 6


def structure(rel: RelGraph) -> tuple:
    """What stands for a graph among the arguments of an operator."""
    return rel.source, rel.destination, rel.relation, rel.shape[1], rel.shape[0], rel.num_relations


def graph_of(structure: tuple) -> RelGraph:
    """The graph that these arguments stand for."""
    source, destination, relation, num_sources, num_destinations, num_relations = structure
    arrays = [plain_tensor(a) for a in (source, destination, relation)]
    return RelGraph._of_arrays(*arrays, (num_destinations, num_sources), num_relations)


def checked(operator: str, rel: RelGraph, transposed: bool, fits: bool, widths: tuple[int, int], x, g, a, *weights) -> list:
    """x, g, a and the weights as plain tensors.

    Raises ValueError unless the weights are as ``fits`` says, the rows of x and g of these widths, one for each node, a of one number
    for each edge, and the types agree. None: not among the operands.
    """
    rows, cols = rel.shape[::-1] if transposed else rel.shape
    for y, count, width in ((x, cols, widths[0]), (g, rows, widths[1])):
        fits = fits and (y is None or y.shape == (count, width))
    given = [y for y in (x, *weights, g) if y is not None]
    fits = fits and (a is None or a.shape == (rel.num_edges,) and a.dtype is wide_type(x.dtype))
    if not fits or any(y.dtype is not x.dtype for y in given):
        found = ", ".join(f"{tuple(y.shape)} of {y.dtype}" for y in (*given, a) if y is not None)
        raise ValueError(f"{operator}: operands {found} do not go with {rel!r} and each other")
    return [None if y is None else plain_tensor(y) for y in (x, g, a, *weights)]


def _checked_matrices(operator: str, rel: RelGraph, transposed: bool, x, w, g=None, a=None) -> list:
    widths = w.shape[1] * w.shape[2], w.shape[1] * w.shape[3]
    return checked(operator, rel, transposed, w.shape[0] == rel.num_relations, widths, x, g, a, w)


@torch.library.impl("gsb::rgms_product", "default")
def _product(s, d, r, ns, nd, nr, x, w, a, mean, transposed, order):
    rel = graph_of((s, d, r, ns, nd, nr))
    x, _, a, w = _checked_matrices("rgms_product", rel, transposed, x, w, None, a)
    return run_product(rel, x, w, a, mean, transposed, order or None)


@torch.library.impl("gsb::rgms_sum", "default")
def _sum(s, d, r, ns, nd, nr, x, g, a, blocks, mean, transposed):
    rel = graph_of((s, d, r, ns, nd, nr))
    widths = x.shape[1], g.shape[1]
    fits = blocks > 0 and not any(width % blocks for width in widths)
    x, g, a = checked("rgms_sum", rel, transposed, fits, widths, x, g, a)
    return run_sum(rel, x, g, blocks, a, mean, transposed).contiguous()


@torch.library.impl("gsb::rgms_dot", "default")
def _dot(s, d, r, ns, nd, nr, x, w, g, mean, transposed):
    rel = graph_of((s, d, r, ns, nd, nr))
    x, g, _, w = _checked_matrices("rgms_dot", rel, transposed, x, w, g)
    return run_dot(rel, x, w, g, mean, transposed)


@torch.library.register_fake("gsb::rgms_product")
def _product_fake(s, d, r, ns, nd, nr, x, w, a, mean, transposed, order):
    return x.new_empty((ns if transposed else nd, w.shape[1] * w.shape[3]))


@torch.library.register_fake("gsb::rgms_sum")
def _sum_fake(s, d, r, ns, nd, nr, x, g, a, blocks, mean, transposed):
    return x.new_empty((nr, blocks, x.shape[1] // blocks, g.shape[1] // blocks))


@torch.library.register_fake("gsb::rgms_dot")
def _dot_fake(s, d, r, ns, nd, nr, x, w, g, mean, transposed):
    return x.new_empty((s.shape[0],), dtype=wide_type(x.dtype))


def keep(ctx, structure: tuple, *operands) -> None:
    """Save the arguments of an operator for its backward pass."""
    ctx.sizes = structure[3:]
    # in eager mode the graph lives until the backward pass, with what it has derived
    ctx.rel = find_live(*structure) if is_plain(*structure[:3]) else None
    ctx.save_for_backward(*structure[:3], *operands)


def _save_product(ctx, inputs, output):
    *structure, x, w, a, ctx.mean, ctx.transposed, _ = inputs
    keep(ctx, tuple(structure), x, w, a)


def _save_sum(ctx, inputs, output):
    *structure, x, g, a, _, ctx.mean, ctx.transposed = inputs
    keep(ctx, tuple(structure), x, g, a)


def _save_dot(ctx, inputs, output):
    *structure, x, w, g, ctx.mean, ctx.transposed = inputs
    keep(ctx, tuple(structure), x, w, g)


_DERIVATIVES = {
    "x": lambda graph, x, w, a, g, mean, transposed: _ops.rgms_product(
        *graph, g, w.transpose(2, 3), a, mean, not transposed, ""),
    "w": lambda graph, x, w, a, g, mean, transposed: _ops.rgms_sum(*graph, x, g, a, w.shape[1], mean, transposed),
    "a": lambda graph, x, w, a, g, mean, transposed: _ops.rgms_dot(*graph, x, w, g, mean, transposed),
    "g": lambda graph, x, w, a, g, mean, transposed: _ops.rgms_product(*graph, x, w, a, mean, transposed, ""),
}
"""T differentiated by each of its operands. A shape alone is read of the operand that it is differentiated by."""


def _backward(operands: str, by: str, others: int):
    """The backward pass of T differentiated by one operand, ``by``, as a function of the three ``operands``.

    The cotangent stands in the place of ``by``. others: arguments of the operator after these three.
    """

    def backward(ctx, grad):
        s, d, r, *saved = ctx.saved_tensors
        values = dict(zip(operands, saved)) | {by: grad}
        found = [_DERIVATIVES[name]((s, d, r, *ctx.sizes), **values, mean=ctx.mean, transposed=ctx.transposed)
                 if needed else None for name, needed in zip(operands, ctx.needs_input_grad[6:])]
        return *NO_GRADIENTS, *found, *(None,) * others

    return backward


torch.library.register_autograd("gsb::rgms_product", _backward("xwa", "g", 3), setup_context=_save_product)
torch.library.register_autograd("gsb::rgms_sum", _backward("xga", "w", 3), setup_context=_save_sum)
torch.library.register_autograd("gsb::rgms_dot", _backward("xwg", "a", 2), setup_context=_save_dot)
