"""RGMS with bases in ``torch.library``, as ``rgms_library`` has it for matrices.

The operators:

    gsb::rgms_basis_product, gsb::rgms_basis_dot, gsb::rgms_basis_sums

They are as in `rgms_derivatives`, which has their gradients.
"""

from __future__ import annotations

import torch

from ...structures.relational.graph import RelGraph
from .basis import run_basis_dot, run_basis_product, run_basis_sums
from .executables_cpu import wide_type
from .gradients import basis_dot_gradients, basis_product_gradients, basis_sums_gradients
from .library import GRAPH, checked, graph_of, register

for _name, _operands, _result in (
    ("product", "Tensor x, Tensor comp, Tensor bases, Tensor? a, bool mean, bool transposed", "Tensor"),
    ("dot", "Tensor x, Tensor comp, Tensor bases, Tensor g, bool mean, bool transposed", "Tensor"),
    (
        "sums",
        "Tensor x, Tensor comp, Tensor bases, Tensor? a, Tensor g, bool mean, bool transposed",
        "(Tensor, Tensor)",
    ),
):
    torch.library.define(
        f"gsb::rgms_basis_{_name}", f"({GRAPH}, {_operands}) -> {_result}", tags=torch.Tag.pt2_compliant_tag
    )


def _checked(operator: str, rel: RelGraph, transposed: bool, x, comp, bases, g=None, a=None) -> list:
    fits = bases.dim() == 3 and comp.shape == (rel.num_relations, bases.shape[0])
    return checked(operator, rel, transposed, fits, tuple(bases.shape[1:]), x, g, a, comp, bases)


@torch.library.impl("gsb::rgms_basis_product", "default")
def _product(s, d, r, ns, nd, nr, x, comp, bases, a, mean, transposed):
    rel = graph_of((s, d, r, ns, nd, nr))
    x, _, a, comp, bases = _checked("rgms_basis_product", rel, transposed, x, comp, bases, None, a)
    return run_basis_product(rel, x, comp, bases, a, mean, transposed)


@torch.library.impl("gsb::rgms_basis_dot", "default")
def _dot(s, d, r, ns, nd, nr, x, comp, bases, g, mean, transposed):
    rel = graph_of((s, d, r, ns, nd, nr))
    x, g, _, comp, bases = _checked("rgms_basis_dot", rel, transposed, x, comp, bases, g)
    return run_basis_dot(rel, x, comp, bases, g, mean, transposed)


@torch.library.impl("gsb::rgms_basis_sums", "default")
def _sums(s, d, r, ns, nd, nr, x, comp, bases, a, g, mean, transposed):
    rel = graph_of((s, d, r, ns, nd, nr))
    x, g, a, comp, bases = _checked("rgms_basis_sums", rel, transposed, x, comp, bases, g, a)
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


register("rgms_basis_product", basis_product_gradients, 4)
register("rgms_basis_dot", basis_dot_gradients, 4)
register("rgms_basis_sums", basis_sums_gradients, 5)
