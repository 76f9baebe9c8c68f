"""What kernel maps cost to build, from coordinates: ours, spconv's, and one ``torch.unique`` for each offset."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.layers.sparse_conv import contenders, spconv
from benchmarks.support import summary
from benchmarks.support.timing import Rules, interleaved
from gnn_sparse_backend.nn import SparseTensor
from models.point_clouds.layers import Layer

UNIQUE = "unique"
NOTES = {
    contenders.OURS: "SparseTensor(...).kernel_map(...), which sorts the sites first",
    UNIQUE: "for each offset torch.unique of the sites and the moved sites, as 64-bit keys",
    spconv.NAME: "get_indice_pairs of spconv 2.3.8",
}
LONG_CALL = 2.0
"""Seconds from which one call is enough."""


def maps_of(layers: Sequence[Layer]) -> list[Layer]:
    """A layer for each kernel map that is built: those of transposed layers are those of strided ones."""
    built = (layer for layer in layers if layer.kind != "transposed")
    return list({(layer.kernel, layer.stride, layer.at): layer for layer in built}.values())


def unique_pairs(sites: Tensor, sites_out: Tensor, kernel: int, stride: int) -> tuple[Tensor, Tensor, Tensor]:
    """(inputs, outputs, pairs of each offset) of a map between sites, by ``torch.unique`` for each offset."""
    before = (kernel - 1) // 2
    every = torch.cat([sites[:, 1:], sites_out[:, 1:] * stride])
    low, high = every.amin(0) - kernel, every.amax(0) + kernel
    sizes = high - low + 1
    steps = torch.stack([sizes.prod(), sizes[1] * sizes[2], sizes[2], sizes.new_tensor(1)]).long()

    def keys(rows: Tensor) -> Tensor:
        return ((rows.long() - torch.cat([low.new_zeros(1), low])) * steps).sum(1)

    ours = keys(sites)
    moved = torch.cat([sites_out[:, :1], sites_out[:, 1:] * stride - before], 1)
    moved, inputs, outputs, counts = keys(moved), [], [], []
    for offset in itertools.product(range(kernel), repeat=3):
        wanted = moved + (steps[1:] * torch.tensor(offset)).sum()
        number, count = torch.unique(torch.cat([ours, wanted]), return_inverse=True, return_counts=True)[1:]
        there = (count[number[len(ours) :]] == 2).nonzero().flatten()  # sites are distinct, and so are moved ones
        row = torch.empty(len(count), dtype=torch.int64)
        row[number[: len(ours)]] = torch.arange(len(ours))
        inputs.append(row[number[len(ours) :][there]])
        outputs.append(there)
        counts.append(len(there))
    return torch.cat(inputs), torch.cat(outputs), torch.tensor(counts)


def builders(layer: Layer) -> dict[str, Callable[[], object]]:
    """What builds the layer's map, by contender."""
    features = torch.empty(len(layer.sites), 1)

    def ours():
        return SparseTensor(features, layer.sites, layer.at).kernel_map(layer.kernel, layer.stride)

    found: dict[str, Callable[[], object]] = {
        contenders.OURS: ours,
        UNIQUE: lambda: unique_pairs(layer.sites, layer.sites_out, layer.kernel, layer.stride),
    }
    if spconv.installed():
        found[spconv.NAME] = spconv.Pairs(layer).find
    return found


def measure(where: str, layer: Layer, budget: float) -> dict:
    """One map, as plain values: its size, and the times of its builders in seconds."""
    rules = Rules(budget_s=budget, min_rounds=3, long_rounds=1, long_s=LONG_CALL, hopeless=3.0)
    timings = {name: timing.to_dict() for name, timing in interleaved(builders(layer), rules).items()}
    return {
        "where": f"{where}, {layer.kernel}^3 at stride {layer.at}, step {layer.stride}",
        "kernel": layer.kernel,
        "stride": layer.stride,
        "at": layer.at,
        "inputs": layer.kernel_map.shape[1],
        "outputs": layer.kernel_map.shape[0],
        "pairs": layer.kernel_map.num_pairs,
        "timings": timings,
        "speedup": summary.speedup({name: t["median"] for name, t in timings.items()}, (contenders.OURS,)),
    }
