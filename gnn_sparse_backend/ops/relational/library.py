"""RGMS in ``torch.library``: what ``torch.compile`` traces, fake tensors and tensor subclasses.

    gsb::rgms_product, gsb::rgms_sum, gsb::rgms_dot   as in `rgms_derivatives`, which has their gradients

A structure enters as its tensors, and the live ``RelGraph`` that owns them is found again at run time, with all that it
has derived.
"""

from __future__ import annotations

import torch

from ...structures.checks import plain_tensor
from ...structures.relational.graph import RelGraph, find_live
from ..core.operands import is_plain
from .executables import run_dot, run_product, run_sum
from .executables_cpu import wide_type
from .gradients import dot_gradients, product_gradients, sum_gradients

STRUCTURE = (
    "Tensor source",
    "Tensor destination",
    "Tensor relation",
    "SymInt num_sources",
    "SymInt num_destinations",
    "SymInt num_relations",
)
GRAPH = ", ".join(STRUCTURE)
for _name, _operands in (
    ("product", "Tensor x, Tensor w, Tensor? a, bool mean, bool transposed, str order"),
    ("sum", "Tensor x, Tensor g, Tensor? a, SymInt blocks, bool mean, bool transposed"),
    ("dot", "Tensor x, Tensor w, Tensor g, bool mean, bool transposed"),
):
    torch.library.define(f"gsb::rgms_{_name}", f"({GRAPH}, {_operands}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)

_ops = torch.ops.gsb


def structure(rel: RelGraph) -> tuple:
    """What stands for a graph among the arguments of an operator."""
    return rel.source, rel.destination, rel.relation, rel.shape[1], rel.shape[0], rel.num_relations


def graph_of(structure: tuple) -> RelGraph:
    """The graph that these arguments stand for."""
    source, destination, relation, num_sources, num_destinations, num_relations = structure
    arrays = [plain_tensor(a) for a in (source, destination, relation)]
    return RelGraph._of_arrays(*arrays, (num_destinations, num_sources), num_relations)


def checked(
    operator: str, rel: RelGraph, transposed: bool, fits: bool, widths: tuple[int, int], x, g, a, *weights
) -> list:
    """x, g, a and the weights as plain tensors.

    Raises ValueError unless the weights are as ``fits`` says, the rows of x and g of these widths, one for each node, a
    of one number for each edge, and the types agree. None: not among the operands.
    """
    rows, cols = rel.shape[::-1] if transposed else rel.shape
    for y, count, width in ((x, cols, widths[0]), (g, rows, widths[1])):
        fits = fits and (y is None or y.shape == (count, width))
    given = [y for y in (x, *weights, g) if y is not None]
    fits = fits and (a is None or (a.shape == (rel.num_edges,) and a.dtype is wide_type(x.dtype)))
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


class Traced:
    """The operators on a structure that stands for a graph, for the gradients of `rgms_derivatives`."""

    def __init__(self, structure: tuple):
        self.structure = structure

    def product(self, x, w, a, mean, transposed):
        return _ops.rgms_product(*self.structure, x, w, a, mean, transposed, "")

    def sum(self, x, g, a, blocks, mean, transposed):
        return _ops.rgms_sum(*self.structure, x, g, a, blocks, mean, transposed)

    def dot(self, x, w, g, mean, transposed):
        return _ops.rgms_dot(*self.structure, x, w, g, mean, transposed)

    def basis_product(self, x, comp, bases, a, mean, transposed):
        return _ops.rgms_basis_product(*self.structure, x, comp, bases, a, mean, transposed)

    def basis_dot(self, x, comp, bases, g, mean, transposed):
        return _ops.rgms_basis_dot(*self.structure, x, comp, bases, g, mean, transposed)

    def basis_sums(self, x, comp, bases, a, g, mean, transposed):
        return _ops.rgms_basis_sums(*self.structure, x, comp, bases, a, g, mean, transposed)


def register(name: str, gradients, operands: int, before: int = 0, after: int = 0) -> None:
    """Have the operator ``gsb::name`` differentiated by ``gradients``. operands: how many; before, after: arguments
    that stand between them and ``mean``, and after ``transposed``."""
    first, marks = len(STRUCTURE), len(STRUCTURE) + operands + before

    def save(ctx, inputs, output) -> None:
        ctx.mean, ctx.transposed = inputs[marks : marks + 2]
        ctx.sizes = inputs[3:first]
        # in eager mode the graph lives until the backward pass, with what it has derived
        ctx.rel = find_live(*inputs[:first]) if is_plain(*inputs[:3]) else None
        ctx.save_for_backward(*inputs[:3], *inputs[first : first + operands])

    def backward(ctx, *cotangents):
        s, d, r, *saved = ctx.saved_tensors  # once: a checkpointed region unpacks each tensor a single time
        found = gradients(
            Traced((s, d, r, *ctx.sizes)),
            saved,
            ctx.needs_input_grad[first : first + operands],
            ctx.mean,
            ctx.transposed,
            *cotangents,
        )
        return *(None,) * first, *found, *(None,) * (before + 2 + after)

    torch.library.register_autograd(f"gsb::{name}", backward, setup_context=save)


register("rgms_product", product_gradients, 3, after=1)
register("rgms_sum", sum_gradients, 3, before=1)
register("rgms_dot", dot_gradients, 3)
