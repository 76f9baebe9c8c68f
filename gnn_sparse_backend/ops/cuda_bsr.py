"""Sums and means over locally dense graphs on a GPU, from blocks that are made once for a graph.

Sums of the features of sources, and of their products with a number for each edge: SpMM, and its gradient by the features.
"""
from __future__ import annotations

import functools

import torch
from torch import Tensor

from ..compiler.programs.message import parse
from ..formats.bsr import BsrFormat
from ..formats.sr_bcrs import SrBcrsFormat
from ..formats.values import pad_by_position
from ..planner.cuda_bsr import block_of, bsr_kernel, may_pay, most_in_bsr, most_slots
from .form import Form
from .immutable import once
from .kernels import type_name
from .layout import compact
from .memory import empty
from .precision import on_tensor_cores

_COPY, _PRODUCTS = parse("x0"), (parse("mul(x0, x1)"), parse("mul(x1, x0)"))
_entries: dict = {}


def run_blocks(of: Form, graph, operands: list[Tensor | None], arch: str) -> Tensor | None:
    """The aggregation on Tensor Cores; None where it is none of these, or the graph is not dense enough."""
    roles = _roles(of)
    if roles is None:
        return None
    x, weight = operands[roles[0]], None if roles[1] is None else operands[roles[1]]
    features = x[0].numel() if x.dim() > 1 and x.shape[0] else 0
    if not may_pay(graph.num_edges, features, type_name(x.dtype), arch) or not on_tensor_cores(x.dtype):
        return None
    if weight is not None and (weight.dtype != x.dtype or weight.numel() != graph.num_edges or weight.dim() > x.dim()):
        return None
    stored = blocks_of(graph, block_of(type_name(x.dtype)))
    values = None if stored is None else _values(graph, stored, x.dtype, weight)
    if values is None:
        return None
    mean, listed = of.reduce == "mean", type(stored) is SrBcrsFormat
    key = (features, mean, type_name(x.dtype), type_name(stored.index_dtype), arch, listed)
    entry = _entries.get(key)
    if entry is None:
        entry = _entries[key] = bsr_kernel(*key).entry
    rows, cols = graph.shape
    out = empty(x, rows, *x.shape[1:])
    degrees = (graph.in_degrees.to(stored.index_dtype),) if mean else ()
    across = () if listed else (-(-cols // stored.block[1]),)
    entry(stored.indptr.numel() - 1, *across, stored.mask.shape[0], rows, cols, stored.indptr, stored.indices, compact(values),
          stored.mask.view(torch.uint8), *degrees, compact(x).view(cols, features), out.view(rows, features))
    return out


def blocks_of(graph, block: tuple[int, int]) -> BsrFormat | SrBcrsFormat | None:
    """The blocks of a graph in the format that the planner takes, None where both store too much; found out at the first use,
    which waits for the GPU."""

    def make() -> BsrFormat | SrBcrsFormat | None:
        listed = _limited(SrBcrsFormat, graph, block, most_slots(graph.num_edges))
        if listed is None:  # BSR would store no less
            return None
        return _limited(BsrFormat, graph, block, most_in_bsr(graph.num_edges, listed.num_slots)) or listed

    return once(graph.plans, ("blocks on a GPU", block), lambda: (make(),))[0]


def _limited(make, graph, block: tuple[int, int], most: int) -> BsrFormat | SrBcrsFormat | None:
    """The graph in a format, None where it would store more than ``most`` elements."""
    try:
        return make.from_csr(graph.indptr, graph.indices, graph.shape, block, max_slots=most, check=False)
    except ValueError:
        return None


def _values(graph, stored: BsrFormat | SrBcrsFormat, dtype: torch.dtype, weight: Tensor | None) -> Tensor | None:
    """What the blocks store, (blocks, 16, columns): numbers of edges, or their weights. None where a slot has more edges than
    the type counts, or several, whose weights would be added up in any order."""
    key = ("values on a GPU", stored.block, dtype if weight is None else None)
    found = once(graph.plans, key, lambda: (_counts(stored, dtype) if weight is None else _edge_of_slot(graph, stored),))[0]
    return found if weight is None or found is None else pad_by_position(weight.reshape(-1), found)


def _counts(stored: BsrFormat | SrBcrsFormat, dtype: torch.dtype) -> Tensor | None:
    counts = stored.pad_values(torch.ones(stored.nnz, device=stored.device))
    return None if float(counts.max()) * torch.finfo(dtype).eps > 2 else counts.to(dtype)


def _edge_of_slot(graph, stored: BsrFormat | SrBcrsFormat) -> Tensor | None:
    """The number of the edge in each slot, -1 for none."""
    if stored.num_duplicates:
        return None
    position = stored.value_position
    if graph.edge_ids is None:
        return position
    return torch.where(position < 0, position, graph.edge_ids[position.clamp(min=0).long()].to(position.dtype))


@functools.lru_cache(maxsize=None)
def _roles(of: Form) -> tuple[int, int | None] | None:
    """(operand of the features, operand of the weights) where the form is such a sum."""
    if of.reduce not in ("sum", "mean"):
        return None
    if of.message == _COPY and of.places == ("column",):
        return 0, None
    if of.message in _PRODUCTS and set(of.places) == {"column", "edge"}:
        return of.places.index("column"), of.places.index("edge")
    return None


__all__ = ["blocks_of", "run_blocks"]
