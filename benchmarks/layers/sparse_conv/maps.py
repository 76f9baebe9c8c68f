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
from gnn_sparse_backend.nn.voxels.maps import convolved
from gnn_sparse_backend.structures.coordinates import Coordinates, Window
from gnn_sparse_backend.structures.kernel_map import KernelMap
from models.point_clouds.layers import Layer

OUTPUTS = {"submanifold": "occupied", "strided": "reached"}
"""The sites of the results of layers by kind, as `gnn_sparse_backend.nn` has them."""
UNIQUE = "unique"
ALL = "all maps of the network"
NOTES = {
    contenders.OURS: "SparseTensor(...).kernel_map(...), which orders the sites first; of all maps once",
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


def builders_of_all(layers: Sequence[Layer]) -> dict[str, Callable[[], object]]:
    """What builds all maps of these layers (`maps_of`) from the coordinates of the first, by contender."""
    first = layers[0]

    def ours() -> list[KernelMap]:
        at, found = {first.at: Coordinates.of(first.sites, first.at)}, []
        for layer in layers:
            kernel_map, sites, _ = convolved(
                at[layer.at], (), Window.of(3, layer.kernel, layer.stride), OUTPUTS[layer.kind]
            )
            at.setdefault(layer.at * layer.stride, sites)
            found.append(kernel_map)
        return found

    each = [builders(layer) for layer in layers]
    others = {name: lambda name=name: [one[name]() for one in each] for name in each[0] if name != contenders.OURS}
    return {contenders.OURS: ours, **others}


def measure_all(where: str, layers: Sequence[Layer], budget: float) -> dict:
    """All maps together, as `measure` has one."""
    ends = layers[0].kernel_map.shape
    pairs = sum(layer.kernel_map.num_pairs for layer in layers)
    return _measured(f"{where}, {ALL}", builders_of_all(layers), budget) | {
        "kernel": 0, "stride": 0, "at": layers[0].at, "inputs": ends[1], "outputs": ends[0], "pairs": pairs
    }  # fmt: skip


def measure(where: str, layer: Layer, budget: float) -> dict:
    """One map, as plain values: its size, and the times of its builders in seconds."""
    what = f"{where}, {layer.kernel}^3 at stride {layer.at}, step {layer.stride}"
    return _measured(what, builders(layer), budget) | {
        "kernel": layer.kernel,
        "stride": layer.stride,
        "at": layer.at,
        "inputs": layer.kernel_map.shape[1],
        "outputs": layer.kernel_map.shape[0],
        "pairs": layer.kernel_map.num_pairs,
    }


def _measured(where: str, builders: dict[str, Callable[[], object]], budget: float) -> dict:
    rules = Rules(budget_s=budget, min_rounds=3, long_rounds=1, long_s=LONG_CALL, hopeless=3.0)
    timings = {name: timing.to_dict() for name, timing in interleaved(builders, rules).items()}
    medians = {name: timing["median"] for name, timing in timings.items()}
    ratios = {name: median / medians[contenders.OURS] for name, median in medians.items() if name != contenders.OURS}
    return {
        "where": where,
        "timings": timings,
        "ratios": ratios,
        "speedup": summary.speedup(medians, (contenders.OURS,)),
    }


def by_kind(found: Sequence[dict]) -> dict[str, dict[str, float | None]]:
    """Geometric means of the ratios to each other contender, by kernel and stride."""
    kinds: dict[str, list[dict]] = {}
    for each in found:
        name = f"{each['kernel']}^3, stride {each['stride']}" if each["kernel"] else ALL
        kinds.setdefault(name, []).append(each["ratios"])
    names = dict.fromkeys(name for ratios in kinds.values() for each in ratios for name in each)
    return {
        kind: {name: summary.mean_or_none(each.get(name) for each in ratios) for name in names}
        for kind, ratios in kinds.items()
    }
