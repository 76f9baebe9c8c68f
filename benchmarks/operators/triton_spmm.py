"""A product of a CSR matrix and a dense one in Triton: a program for each row and stretch of features, which takes
several non-zeros at a time; how many, and how many warps, is tuned at the first call of a width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 128
CONFIGURATIONS = [triton.Config({"EDGES": edges}, num_warps=warps) for edges in (8, 32) for warps in (1, 4)]


@triton.autotune(CONFIGURATIONS, key=["features"])
@triton.jit
def _rows(indptr, indices, values, x, out, features, BLOCK: tl.constexpr, EDGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    feature = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = feature < features
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(begin, end, EDGES):
        edge = at + tl.arange(0, EDGES)
        there = edge < end
        column = tl.load(indices + edge, mask=there, other=0).to(tl.int64)
        weight = tl.load(values + edge, mask=there, other=0.0).to(tl.float32)
        gathered = tl.load(
            x + column[:, None] * features + feature[None, :], mask=there[:, None] & inside[None, :], other=0.0
        )
        total += tl.sum(gathered.to(tl.float32) * weight[:, None], axis=0)
    tl.store(out + row * features + feature, total, mask=inside)


def product(indptr: Tensor, indices: Tensor, values: Tensor, x: Tensor) -> Tensor:
    """(rows, F) in the type of x, summed in float32. indptr: (rows + 1,); values: (nnz,); x: (columns, F) row by
    row.
    """
    rows, features = len(indptr) - 1, x.shape[1]
    out = torch.empty(rows, features, dtype=x.dtype, device=x.device)
    block = min(WIDEST, triton.next_power_of_2(features))
    _rows[(rows, triton.cdiv(features, block))](indptr, indices, values, x.detach(), out, features, BLOCK=block)
    return out
