"""Products of composed matrices as operators, closed under differentiation.

With A the matrix of packed values a, and A^T of a' = repack(a)::

    spmm(a, x)   = A x            grad_a = sddmm(g, x)          grad_x = spmm(a', g) on the transpose
    sddmm(u, v)  = (u v^T) at A   grad_u = spmm(g, v)           grad_v = spmm(g', u) on the transpose
    repack(a)    = a'             grad_a = repack(g) on the transpose

The attribute ``tokens`` says that rows of the dense operands are tokens, as in a linear layer: y = x A^T, and with a
third operand y = x A^T + b, where grad_b is the sum of g over the tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...formats.composed.decompose import repacking, transposed
from ...formats.composed.decomposition import Decomposition
from ...formats.composed.spec import SEPARATOR, parse_formats
from ...runtime import devices
from ...structures.graph import Graph
from ..core.library import TRANSPOSED
from ..core.operands import check_dense
from ..core.operator import Operator
from ..core.traced import StructureKind, Traced
from . import executables_cuda as on_gpu
from .executables import run_spmm
from .executables_linear import run_linear
from .executables_sddmm import run_sddmm


class Composed:
    """A decomposition as the structure of operators: itself, or its transpose."""

    __slots__ = ("parts",)

    def __init__(self, parts: Decomposition) -> None:
        self.parts = parts

    def transpose(self) -> Composed:
        return Composed(transposed(self.parts))


def traced_parts(composed: Composed) -> Traced:
    """What stands for a decomposition where a program is traced: the matrix that it was made of, and the formats."""
    made_of = composed.parts.made_of
    return Traced(made_of[:-1], made_of[-1])


def _parts(arguments: tuple, operands: Any) -> Composed:
    indptr, indices, edge_ids, columns, words, fill, *_ = arguments
    graph = Graph._of_arrays(indptr, indices, edge_ids, columns)
    return Composed(graph.decomposed(parse_formats(words.split(SEPARATOR)), fill))


PARTS = StructureKind(
    (
        "Tensor indptr",
        "Tensor indices",
        "Tensor? edge_ids",
        "SymInt num_columns",
        "str formats",
        "float fill",
        "SymInt num_slots",
        "SymInt transposed_slots",
    ),
    traced_parts,
    _parts,
)


def _run_spmm(composed: Composed, operands: Any, attributes: Any) -> Tensor:
    packed, x, bias = operands
    (tokens,) = attributes
    arch = devices.arch_of(x.device)
    if arch:
        y = on_gpu.run_spmm(composed.parts, packed, x, arch, tokens)
        return y if bias is None else y.add_(bias)
    return run_linear(composed.parts, packed, x, bias) if tokens else run_spmm(composed.parts, packed, x)


def _run_sddmm(composed: Composed, operands: Any, attributes: Any) -> Tensor:
    return devices.on_either(operands[0], run_sddmm, on_gpu.run_sddmm, composed.parts, *operands, *attributes)


def _run_repack(composed: Composed, operands: Any, attributes: Any) -> Tensor:
    (packed,) = operands
    parts = composed.parts
    if parts.padding or transposed(parts).padding:
        packed = torch.cat([packed, packed.new_zeros((*packed.shape[:-1], 1))], -1)
    return packed.index_select(-1, repacking(parts))


def _gradients_of_spmm(structure, attributes, saved, memo, needed, g):
    packed, x, _ = saved
    to_packed = SDDMM(structure, (g, x), attributes) if needed[0] else None
    to_x = SPMM(structure.transpose(), (REPACK(structure, (packed,)), g, None), attributes) if needed[1] else None
    return [to_packed, to_x, g.sum(0) if needed[2] else None]


def _gradients_of_sddmm(structure, attributes, saved, memo, needed, g):
    u, v = saved
    to_u = SPMM(structure, (g, v, None), attributes) if needed[0] else None
    to_v = SPMM(structure.transpose(), (REPACK(structure, (g,)), u, None), attributes) if needed[1] else None
    return [to_u, to_v]


def _gradients_of_repack(structure, attributes, saved, memo, needed, g):
    return [REPACK(structure.transpose(), (g,))]


def _rows_like(arguments, operands, attributes, is_transposed):
    """Empty results of a product: as many rows as the matrix has."""
    rows = arguments[3] if is_transposed else arguments[0].shape[0] - 1
    x, (tokens,) = operands[1], attributes
    return x.new_empty((x.shape[0], rows) if tokens else (*x.shape[:-2], rows, x.shape[-1]))


def _slots_like(arguments, operands, attributes, is_transposed):
    u = operands[0]
    return u.new_empty((*u.shape[:-2], _slots(arguments, is_transposed)))


def _slots(arguments, is_transposed):
    """Slots of the decomposition, or of its transpose, which pads otherwise."""
    return arguments[7] if is_transposed else arguments[6]


def _repacked_like(arguments, operands, attributes, is_transposed):
    (packed,) = operands
    return packed.new_empty((*packed.shape[:-1], _slots(arguments, not is_transposed)))


def _operator(name: str, run: Any, gradients: Any, operands: str, attributes: str, like: Any) -> Operator:
    def check(composed, operands, attributes):
        for x in operands:
            if x is not None:
                check_dense(name, "an operand", x)
        return [x if x is None else x.contiguous() for x in operands]

    schema = {"operands": operands, "attributes": attributes, **TRANSPOSED}
    return Operator(name, run, gradients, structure=PARTS, **schema, like=like, check=check)


SPMM = _operator(
    "composed_spmm",
    _run_spmm,
    _gradients_of_spmm,
    "Tensor packed, Tensor x, Tensor? bias",
    "bool tokens, bool transposed",
    _rows_like,
)
SDDMM = _operator(
    "composed_sddmm", _run_sddmm, _gradients_of_sddmm, "Tensor u, Tensor v", "bool tokens, bool transposed", _slots_like
)
REPACK = _operator(
    "composed_repack", _run_repack, _gradients_of_repack, "Tensor packed", "bool transposed", _repacked_like
)
