"""Sums and means over locally dense graphs on a GPU, from blocks that are made once for a graph.

Sums of the features of sources, and of their products with a number for each edge: SpMM, and its gradient by the features.
"""
from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from ..compiler.programs.message import parse
from ..formats.bsr import BsrFormat
from ..formats.values import pad_by_position
from ..planner.cuda_bsr import block_of, bsr_kernel, may_pay, most_slots
from .form import Form
from .immutable import once
from .kernels import type_name
from .layout import compact
from .memory import empty
from .precision import on_tensor_cores

_COPY, _PRODUCTS = parse("x0"), (parse("mul(x0, x1)"), parse("mul(x1, x0)"))
_entries: dict = {}


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a graph.

    counts: (blocks, 16, columns) edges of each slot, float32. edges: the number of the edge in each slot, -1 for none; None where
    edges share a slot, whose weights would be added up in any order.
    """

    bsr: BsrFormat
    counts: Tensor
    edges: Tensor | None


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
    blocks = blocks_of(graph, block_of(type_name(x.dtype)))
    if blocks is None or weight is not None and blocks.edges is None:
        return None
    bsr, mean = blocks.bsr, of.reduce == "mean"
    if weight is None:
        values = once(graph.plans, ("blocks on a GPU", bsr.block, x.dtype), lambda: blocks.counts.to(x.dtype))
    else:
        values = pad_by_position(weight.reshape(-1), blocks.edges)
    key = (features, mean, type_name(x.dtype), type_name(bsr.index_dtype), arch)
    entry = _entries.get(key)
    if entry is None:
        entry = _entries[key] = bsr_kernel(*key).entry
    rows, cols = graph.shape
    out = empty(x, rows, *x.shape[1:])
    degrees = (graph.in_degrees.to(bsr.index_dtype),) if mean else ()
    entry(bsr.indptr.numel() - 1, -(-cols // bsr.block[1]), bsr.num_blocks, rows, cols, bsr.indptr, bsr.indices, compact(values),
          bsr.mask.view(torch.uint8), *degrees, compact(x).view(cols, features), out.view(rows, features))
    return out


def blocks_of(graph, block: tuple[int, int]) -> Blocks | None:
    """The blocks of a graph, None where they store too much; found out at the first use, which waits for the GPU."""
    return once(graph.plans, ("blocks on a GPU", block), lambda: (_blocks(graph, block),))[0]


def _blocks(graph, block: tuple[int, int]) -> Blocks | None:
    try:
        bsr = BsrFormat.from_csr(graph.indptr, graph.indices, graph.shape, block, max_slots=most_slots(graph.num_edges), check=False)
    except ValueError:  # they would store more than that
        return None
    counts = bsr.pad_values(torch.ones(bsr.nnz, device=graph.indices.device))
    edges = None
    if not bsr.num_duplicates:
        edges = bsr.value_position
        if graph.edge_ids is not None:
            edges = torch.where(edges < 0, edges, graph.edge_ids[edges.clamp(min=0).long()].to(edges.dtype))
    return Blocks(bsr, counts, edges)


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


__all__ = ["Blocks", "blocks_of", "run_blocks"]
