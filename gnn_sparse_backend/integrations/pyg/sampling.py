"""PyG's samplers, which ask pyg-lib or torch-sparse, where neither is installed.

``NeighborSampler._sample`` is what NeighborLoader, LinkNeighborLoader and their kin come by, ``HGTSampler`` what
HGTLoader does. What works stays PyG's, unless ``GSB_SAMPLER`` asks for ours: all of it where pyg-lib is installed, and
what torch-sparse can do where that is. Random numbers begin with one of torch's default generator, as each worker
process of a loader has its own.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch_geometric.typing
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput, hgt_sampler, neighbor_sampler
from torch_geometric.sampler.base import SubgraphType

from ...config import SAMPLER
from ...deferred import later
from ...formats.counts import extent_of
from ..core.patch import Patches
from ..core.refusal import PASS
from ..pyg_lib import served
from .host import HOST
from .releases import of_sampler

if TYPE_CHECKING:
    from ...sampling import draws, hgt
    from ...sampling import layers as by_layers
    from ...sampling import seeds as seeding
else:
    draws, hgt = later(__name__, "...sampling.draws"), later(__name__, "...sampling.hgt")
    by_layers, seeding = later(__name__, "...sampling.layers"), later(__name__, "...sampling.seeds")

ONE = ""
"""The type of nodes and of edges where there is one."""
_INSTALLED = ("WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")


def install(patches: Patches) -> None:
    """Our sampling in the place of the libraries', until the patches are undone."""
    typing, neighbours, budgets = torch_geometric.typing, neighbor_sampler.NeighborSampler, hgt_sampler.HGTSampler
    asked = bool(SAMPLER.get())
    if asked or not hgt_sampler.WITH_TORCH_SPARSE:
        patches.set(hgt_sampler, "WITH_TORCH_SPARSE", True)
        ours = HOST.admit(budgets.sample_from_nodes, "sample_neighbors", _hgt)
        patches.set(budgets, "sample_from_nodes", ours)
    if typing.WITH_PYG_LIB and not asked and not served.is_wanted():
        return
    for name in _INSTALLED:
        patches.set(typing, name, True)
    if asked or not typing.WITH_TORCH_SPARSE:
        patches.set(neighbours, "__init__", _silent(neighbours.__init__))
    patches.set(neighbours, "_sample", HOST.admit(neighbours._sample, "sample_neighbors", _neighbours))


def _silent(original: Callable) -> Callable:
    """Silence the warning that pyg-lib is wanted."""

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*without a 'pyg-lib' installation")
            original(self, *args, **kwargs)

    return init


def _is_of_torch_sparse(sampler) -> bool:
    """Whether torch-sparse is there, and samples so."""
    return (
        torch_geometric.typing.WITH_TORCH_SPARSE
        and not SAMPLER.get()
        and not sampler.disjoint
        and of_sampler(sampler, "edge_time") is None
        and sampler.edge_weight is None
    )


def _neighbours(self, seed, seed_time=None, **kwargs):
    if _is_of_torch_sparse(self):
        return PASS
    induced = self.subgraph_type == SubgraphType.induced
    if induced and self.disjoint:
        raise ValueError("'disjoint' sampling not supported for neighbor sampling with `subgraph_type='induced'`")
    hetero = isinstance(seed, dict)
    given = _of_types(self) if hetero else _of_one_type(self)
    relations, sizes, fanouts, node_times = given
    seeds = seed if hetero else {ONE: seed}
    _check(self, relations, sizes, seeds)
    latest = _latest(self, seeds, seed_time if hetero or seed_time is None else {ONE: seed_time}, node_times)
    layers = by_layers.sample_layers(
        relations,
        sizes,
        seeds,
        fanouts,
        seeding.drawn_seed(),
        replace=self.replace,
        disjoint=self.disjoint,
        latest=latest,
        last=self.temporal_strategy == "last",
        induced=induced,
    )
    return (_hetero_output if hetero else _output)(self, layers), "sample_neighbors"


def _of_one_type(self):
    of_edges = of_sampler(self, "edge_time")
    times = self.node_time if of_edges is None else of_edges
    sources = self.num_nodes
    relation = draws.Relation(
        ONE, ONE, self.colptr, self.row, sources, _weights(self.edge_weight), _whole(times), of_edges is not None
    )
    return [relation], {ONE: sources}, [self.num_neighbors.get_mapped_values()], {ONE: self.node_time}


def _of_types(self):
    fanouts, relations = self.num_neighbors.get_mapped_values(self.edge_types), []
    node_times, edge_times = self.node_time or {}, of_sampler(self, "edge_time") or {}
    weights = self.edge_weight or {}
    for kind in self.edge_types:
        source, _, destination = kind
        name = self.to_rel_type[kind]
        of_edges = name in edge_times
        times = edge_times[name] if of_edges else node_times.get(source)
        given = self.colptr_dict[name], self.row_dict[name], self.num_nodes[source], _weights(weights.get(name))
        relations.append(draws.Relation(source, destination, *given, _whole(times), of_edges))
    return relations, self.num_nodes, [fanouts[self.to_rel_type[k]] for k in self.edge_types], node_times


def _latest(self, seeds, seed_time, node_times) -> Tensor | None:
    """Until when the neighbours of each seed may be drawn: given, or the seed's own time."""
    if not self.is_temporal:
        return None
    if seed_time is None and of_sampler(self, "edge_time") is not None:
        raise ValueError("Seed time needs to be specified")
    times = [node_times[kind][nodes] if seed_time is None else seed_time[kind] for kind, nodes in seeds.items()]
    return _whole(torch.cat(times))


def _whole(times: Tensor | None) -> Tensor | None:
    if times is not None and times.is_floating_point():
        raise ValueError(f"times of nodes and edges must be integers to sample by them, got {times.dtype}")
    return None if times is None else times.to(torch.int64).contiguous()


def _weights(weights: Tensor | None) -> Tensor | None:
    if weights is None or weights.dtype in (torch.float32, torch.float64):
        return weights
    return weights.to(torch.float64)


def _check(sampler, relations: list[draws.Relation], sizes: dict[str, int], seeds: dict[str, Tensor]) -> None:
    """Kernels trust indices: those of the edges are looked at once, seeds each time."""
    if "_gsb_checked" not in vars(sampler):
        for relation in relations:
            least, most = _ends(relation.indices)
            if least < 0 or most >= relation.sources:
                raise IndexError(f"an edge index is out of range: {relation.sources} nodes, largest index {most}")
        sampler._gsb_checked = True
    for kind, each in seeds.items():
        least, most = _ends(each)
        if least < 0 or most >= sizes[kind]:
            raise IndexError(f"input nodes are out of range: {sizes[kind]} nodes, but input from {least} to {most}")


def _ends(indices: Tensor) -> tuple[int, int]:
    return (int(indices.min()), int(indices.max())) if indices.numel() else (0, -1)


def _output(self, layers: by_layers.Layers) -> SamplerOutput:
    (edges,) = layers.edges
    row, col = edges.sources, edges.destinations
    if of_sampler(self, "sample_direction") == "backward":
        row, col = col, row
    return SamplerOutput(
        node=layers.nodes[ONE],
        row=row,
        col=col,
        edge=edges.positions,
        batch=None if layers.trees is None else layers.trees[ONE],
        **_counts(self, layers.hops[ONE], edges.hops),
    )


def _hetero_output(self, layers: by_layers.Layers) -> HeteroSamplerOutput:
    backward = of_sampler(self, "sample_direction") == "backward"
    kinds = [self.to_restored_edge_type[kind] if backward else kind for kind in self.edge_types]
    found = dict(zip(kinds, layers.edges))
    row = {kind: edges.sources for kind, edges in found.items()}
    col = {kind: edges.destinations for kind, edges in found.items()}
    if backward:
        row, col = col, row
    return HeteroSamplerOutput(
        node=layers.nodes,
        row=row,
        col=col,
        edge={kind: edges.positions for kind, edges in found.items()},
        batch=layers.trees,
        **_counts(self, layers.hops, {kind: edges.hops for kind, edges in found.items()}),
    )


def _counts(self, nodes, edges) -> dict:
    """Counts by layer; PyG expects none of an induced subgraph, whose edges belong to no layer."""
    induced = self.subgraph_type == SubgraphType.induced
    return {} if induced else {"num_sampled_nodes": nodes, "num_sampled_edges": edges}


def _hgt(self, inputs):
    sizes = _sizes(self)
    relations = [
        draws.Relation(kind[0], kind[2], self.colptr_dict[name], self.row_dict[name], sizes[kind[0]])
        for name, kind in self.to_edge_type.items()
    ]
    seeds = {inputs.input_type: inputs.node}
    _check(self, relations, sizes, seeds)
    layers = hgt.sample_budgets(relations, sizes, seeds, self.num_samples, seeding.drawn_seed())
    names = list(self.to_edge_type.values())
    found = dict(zip(names, layers.edges))
    output = HeteroSamplerOutput(
        node={kind: nodes for kind, nodes in layers.nodes.items() if len(nodes)},
        row={kind: edges.sources for kind, edges in found.items()},
        col={kind: edges.destinations for kind, edges in found.items()},
        edge={kind: edges.positions for kind, edges in found.items()},
        batch=None,
        metadata=(inputs.input_id, inputs.time),
    )
    return output, "sample_neighbors"


def _sizes(self) -> dict[str, int]:
    """How many nodes each type has, as far as its edges tell: found once, since the sampler does not keep it."""
    if (known := vars(self).get("num_nodes")) is not None:
        return known
    sizes = dict.fromkeys(self.node_types, 0)
    for name, (source, _, destination) in self.to_edge_type.items():
        row = self.row_dict[name]
        sizes[destination] = max(sizes[destination], self.colptr_dict[name].numel() - 1)
        sizes[source] = max(sizes[source], extent_of(row))
    self.num_nodes = sizes
    return sizes
