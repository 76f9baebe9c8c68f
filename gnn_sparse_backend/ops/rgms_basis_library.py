"""RGMS with bases in ``torch.library``, as ``rgms_library`` has it for matrices.

T = sum over edges e of A[e] * <X[j(e)] W[r(e)], G[i(e)]>, where W[r] = sum over b of comp[r, b] * bases[b], is linear in each of
its five operands, and the operators are its derivatives:

    gsb::rgms_basis_product   by G: (rows, F_out)
    gsb::rgms_basis_dot       by A: (edges,)
    gsb::rgms_basis_sums      by comp: (R, B), and by bases: (B, F_in, F_out), which share the sums of outer products

The gradients of each are again these operators. Those of the sums come from the sum of two such T, which is one T with twice
the bases.
"""
from __future__ import annotations

import torch
from torch import Tensor

from .rel_graph import RelGraph
from .rgms_basis import run_basis_dot, run_basis_product, run_basis_sums
from .rgms_kernels import wide_type
from .rgms_library import GRAPH, NO_GRADIENTS, checked, graph_of, keep, structure

for _name, _operands, _result in (
        ("product", "Tensor x, Tensor comp, Tensor bases, Tensor? a, bool mean, bool transposed", "Tensor"),
        ("dot", "Tensor x, Tensor comp, Tensor bases, Tensor g, bool mean, bool transposed", "Tensor"),
        ("sums", "Tensor x, Tensor comp, Tensor bases, Tensor? a, Tensor g, bool mean, bool transposed", "(Tensor, Tensor)")):
    torch.library.define(f"gsb::rgms_basis_{_name}", f"({GRAPH}, {_operands}) -> {_result}", tags=torch.Tag.pt2_compliant_tag)

_ops = torch.ops.gsb


def basis_product(rel: RelGraph, x: Tensor, comp: Tensor, bases: Tensor, a: Tensor | None, mean: bool) -> Tensor:
    """The product by the operator, whose operands passed the checks of ``gsb.rgms``."""
    return _ops.rgms_basis_product(*structure(rel), x, comp, bases, a, mean, False)


def _checked(operator: str, rel: RelGraph, transposed: bool, x, comp, bases, g=None, a=None) -> list:
    fits = bases.dim() == 3 and comp.shape == (rel.num_relations, bases.shape[0])
    return checked(operator, rel, transposed, fits, tuple(bases.shape[1:]), x, g, a, comp, bases)


def _as_given(x) -> torch.autocast:
    """What runs dense products in the types of their operands, whatever the caller's autocast says."""
    return torch.autocast(x.device.type, enabled=False)


@torch.library.impl("gsb::rgms_basis_product", "default")
def _product(s, d, r, ns, nd, nr, x, comp, bases, a, mean, transposed):
    rel = graph_of((s, d, r, ns, nd, nr))
    x, _, a, comp, bases = _checked("rgms_basis_product", rel, transposed, x, comp, bases, None, a)
    with _as_given(x):
        return run_basis_product(rel, x, comp, bases, a, mean, transposed)


@torch.library.impl("gsb::rgms_basis_dot", "default")
def _dot(s, d, r, ns, nd, nr, x, comp, bases, g, mean, transposed):
    rel = graph_of((s, d, r, ns, nd, nr))
    x, g, _, comp, bases = _checked("rgms_basis_dot", rel, transposed, x, comp, bases, g)
    with _as_given(x):
        return run_basis_dot(rel, x, comp, bases, g, mean, transposed)


@torch.library.impl("gsb::rgms_basis_sums", "default")
def _sums(s, d, r, ns, nd, nr, x, comp, bases, a, g, mean, transposed):
    rel = graph_of((s, d, r, ns, nd, nr))
    x, g, a, comp, bases = _checked("rgms_basis_sums", rel, transposed, x, comp, bases, g, a)
    with _as_given(x):
        return run_basis_sums(rel, x, comp, bases, a, g, mean, transposed)


@torch.library.register_fake("gsb::rgms_basis_product")
def _product_fake(s, d, r, ns, nd, nr, x, comp, bases, a, mean, transposed):
    return x.new_empty((ns if transposed else nd, bases.shape[2]))


@torch.library.register_fake("gsb::rgms_basis_dot")
def _dot_fake(s, d, r, ns, nd, nr, x, comp, bases, g, mean, transposed):
    return x.new_empty((s.shape[0],), dtype=wide_type(x.dtype))


@torch.library.register_fake("gsb::rgms_basis_sums")
def _sums_fake(s, d, r, ns, nd, nr, x, comp, bases, a, g, mean, transposed):
    return comp.new_empty(comp.shape), bases.new_empty(bases.shape)


def _save_product(ctx, inputs, output):
    *structure, x, comp, bases, a, ctx.mean, ctx.transposed = inputs
    keep(ctx, tuple(structure), x, comp, bases, a)


def _save_dot(ctx, inputs, output):
    *structure, x, comp, bases, g, ctx.mean, ctx.transposed = inputs
    keep(ctx, tuple(structure), x, comp, bases, g)


def _save_sums(ctx, inputs, output):
    *structure, x, comp, bases, a, g, ctx.mean, ctx.transposed = inputs
    keep(ctx, tuple(structure), x, comp, bases, a, g)


def _by_ends(graph: tuple, x, comp, bases, a, g, mean: bool, transposed: bool, wanted) -> tuple:
    """T differentiated by x, a and g, those that are ``wanted``."""
    by_x = by_a = by_g = None
    if wanted[0]:
        by_x = _ops.rgms_basis_product(*graph, g, comp, bases.transpose(1, 2), a, mean, not transposed)
    if wanted[1]:
        by_a = _ops.rgms_basis_dot(*graph, x, comp, bases, g, mean, transposed)
    if wanted[2]:
        by_g = _ops.rgms_basis_product(*graph, x, comp, bases, a, mean, transposed)
    return by_x, by_a, by_g


def _by_weights(graph: tuple, x, comp, bases, a, g, mean: bool, transposed: bool, wanted) -> tuple:
    """T differentiated by comp and bases, if either is ``wanted``."""
    return _ops.rgms_basis_sums(*graph, x, comp, bases, a, g, mean, transposed) if any(wanted) else (None, None)


def _product_backward(ctx, g):
    s, d, r, x, comp, bases, a = ctx.saved_tensors
    given = ((s, d, r, *ctx.sizes), x, comp, bases, a, g, ctx.mean, ctx.transposed)
    wants_x, wants_comp, wants_bases, wants_a = ctx.needs_input_grad[6:10]
    by_x, by_a, _ = _by_ends(*given, (wants_x, wants_a, False))
    return *NO_GRADIENTS, by_x, *_by_weights(*given, (wants_comp, wants_bases)), by_a, None, None


def _dot_backward(ctx, a):
    s, d, r, x, comp, bases, g = ctx.saved_tensors
    given = ((s, d, r, *ctx.sizes), x, comp, bases, a, g, ctx.mean, ctx.transposed)
    wants_x, wants_comp, wants_bases, wants_g = ctx.needs_input_grad[6:10]
    by_x, _, by_g = _by_ends(*given, (wants_x, False, wants_g))
    return *NO_GRADIENTS, by_x, *_by_weights(*given, (wants_comp, wants_bases)), by_g, None, None


def _sums_backward(ctx, for_comp, for_bases):
    s, d, r, x, comp, bases, a, g = ctx.saved_tensors
    graph, marks = (s, d, r, *ctx.sizes), (ctx.mean, ctx.transposed)
    wants_x, wants_comp, wants_bases, wants_a, wants_g = ctx.needs_input_grad[6:11]
    # T with for_comp in the place of comp, and T with for_bases in the place of bases, as one
    both = torch.cat([for_comp, comp], 1), torch.cat([bases, for_bases])
    by_x, by_a, by_g = _by_ends(graph, x, *both, a, g, *marks, (wants_x, wants_a, wants_g))
    by_comp, _ = _by_weights(graph, x, comp, for_bases, a, g, *marks, (wants_comp,))
    _, by_bases = _by_weights(graph, x, for_comp, bases, a, g, *marks, (wants_bases,))
    return *NO_GRADIENTS, by_x, by_comp, by_bases, by_a, by_g, None, None


torch.library.register_autograd("gsb::rgms_basis_product", _product_backward, setup_context=_save_product)
torch.library.register_autograd("gsb::rgms_basis_dot", _dot_backward, setup_context=_save_dot)
torch.library.register_autograd("gsb::rgms_basis_sums", _sums_backward, setup_context=_save_sums)
