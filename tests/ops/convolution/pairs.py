"""Kernel maps of random pairs, and sums over them in float64."""

from __future__ import annotations

import torch

import gnn_sparse_backend as gsb

INPUTS, OUTPUTS, OFFSETS = 210, 230, 9


def random_map(
    shape=(OUTPUTS, INPUTS), offsets: int = OFFSETS, share: float = 0.4, index=torch.int32, seed: int = 0
) -> gsb.KernelMap:
    """Offset 3 has no pairs, 1 has one; the last output and the last two inputs have none. share: of rows that have a
    pair of an offset."""
    generator = torch.Generator().manual_seed(seed)
    outputs, inputs = shape
    pairs = []
    for k in range(offsets):
        count = {1: 1, 3: 0}.get(k, int(share * min(outputs - 1, inputs - 2)))
        pairs.append([torch.randperm(n, generator=generator)[:count] for n in (inputs - 2, outputs - 1)])
    indptr = torch.tensor([0, *(len(a) for a, _ in pairs)]).cumsum(0)
    arrays = (torch.cat(each).to(index) for each in zip(*pairs))
    made = gsb.KernelMap.from_pairs(*arrays, indptr.to(index), shape)
    if index is torch.int64:  # sizes alone would make it int32
        made = gsb.KernelMap._make(made.inputs.long(), made.outputs.long(), made.indptr.long(), shape)
    return made


def one_each(outputs: int = OUTPUTS, inputs: int = 60, offsets: int = 4) -> gsb.KernelMap:
    """A map whose outputs have one pair each, as of a transposed convolution with a stride."""
    assert outputs - 1 <= inputs * offsets
    row = torch.arange(outputs - 1)  # the last has none
    offset = row % offsets
    order = torch.argsort(offset, stable=True)
    indptr = torch.nn.functional.pad(torch.bincount(offset).cumsum(0), (1, 0))
    return gsb.KernelMap.from_pairs(row[order] // offsets, row[order], indptr, (outputs, inputs))


def exact(kernel_map: gsb.KernelMap, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """``Y[i] = sum over pairs of x[j] @ w[k]`` in float64. w: (K, groups, F_in, F_out)."""
    x, w, ends = x.double(), w.double(), kernel_map.indptr.tolist()
    out = torch.zeros(kernel_map.shape[0], w.shape[1] * w.shape[3], dtype=torch.float64)
    for k in range(kernel_map.num_offsets):
        inputs, outputs = (a[ends[k] : ends[k + 1]].long() for a in (kernel_map.inputs, kernel_map.outputs))
        made = torch.einsum("ngi,gio->ngo", x[inputs].unflatten(1, (w.shape[1], -1)), w[k])
        out.index_add_(0, outputs, made.flatten(1))
    return out


def exact_sum(kernel_map: gsb.KernelMap, x: torch.Tensor, g: torch.Tensor, groups: int) -> torch.Tensor:
    """``W[k] = sum over pairs of k of outer(x[j], g[i])`` in float64: (K, groups, F_in, F_out)."""
    x, g, ends = (
        x.double().unflatten(1, (groups, -1)),
        g.double().unflatten(1, (groups, -1)),
        kernel_map.indptr.tolist(),
    )
    found = []
    for k in range(kernel_map.num_offsets):
        inputs, outputs = (a[ends[k] : ends[k + 1]].long() for a in (kernel_map.inputs, kernel_map.outputs))
        found.append(torch.einsum("ngi,ngo->gio", x[inputs], g[outputs]))
    return torch.stack(found)


def close(found: torch.Tensor, wanted: torch.Tensor, terms: int, dtype: torch.dtype) -> None:
    """Sums of so many products of numbers of about 1, in at least float32, rounded once to a type."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    assert found.dtype is dtype and found.is_contiguous() and found.shape == wanted.shape
    bound = 2 * terms * torch.finfo(wide).eps
    torch.testing.assert_close(found.double(), wanted, rtol=torch.finfo(dtype).eps, atol=bound)
