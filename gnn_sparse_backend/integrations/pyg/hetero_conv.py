"""``HeteroConv`` of ``SAGEConv`` or ``GraphConv`` layers in PyG: the sums of all relations in one operator.

PyG calls a layer for each edge type: a sum or mean of neighbours, a product, a product of the destination's own
features, and the results are stacked and added. What the neighbours send is relational gather-matmul-scatter. The
matrices for a destination's own features are added up first: one product for each node type instead of one for each
edge type. Where node types have features of several widths, the relations of each shape of matrix are one product
(``ops.relational.widths``).

Layers of other kinds, or on sparse matrices, are called one by one, as PyG does; so are lazy ones until they know their
width.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, Parameter
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.conv import GraphConv, SAGEConv
from torch_geometric.nn.dense.linear import Linear

from ...deferred import later
from ...runtime import devices
from ...structures.checks import FLOATING, read
from ..core.graphs import GRAPHS
from ..core.handles import Handles
from ..core.modules import is_untouched
from ..core.refusal import PASS, Refusal, refusal_of
from ..scopes import transformed
from .layers import has_hooks, is_rerouted

if TYPE_CHECKING:
    from ...ops.relational import api
    from ...structures.relational import sources as relational_sources
    from ...structures.relational.graph import RelGraph
else:
    api = later(__name__, "...ops.relational.api")
    relational_sources = later(__name__, "...structures.relational.sources")

_REDUCES = {MeanAggregation: "mean", SumAggregation: "sum"}
_ARGUMENTS = ("x_dict", "edge_index_dict", "edge_weight_dict")
_TOUCHED = Refusal("a layer is the user's, has hooks, is explained, decomposed or runs against its edges")


class _Kind(NamedTuple):
    """What a kind of layer calls its products: that of what neighbours send, and that of the node's own features."""

    neighbours: Callable[[Module], Linear]
    own: Callable[[Module], Linear | None]
    weighted: bool


_KINDS = {
    SAGEConv: _Kind(lambda layer: layer.lin_l, lambda layer: layer.lin_r if layer.root_weight else None, False),
    GraphConv: _Kind(lambda layer: layer.lin_rel, lambda layer: layer.lin_root, True),
}


class _Relation(NamedTuple):
    """An edge type that takes part. own: the product of the destination's features; None without."""

    name: tuple[str, str, str]
    layer: Module
    reduce: str | None
    edge_index: Tensor
    edge_weight: Tensor | None
    neighbours: Linear
    own: Linear | None


def forward(conv, *args_dict, **kwargs_dict):
    """``HeteroConv.forward`` in one operator."""
    given = None if torch.compiler.is_compiling() else _arguments(conv, args_dict, kwargs_dict)
    relations = PASS if given is None else _relations(conv, *given)
    if type(relations) is Refusal:
        return relations
    if (refusal := transformed() or _refuse(relations)) is not None:
        return refusal
    rel = _graph_of(relations, given[0])
    return PASS if rel is None else (_sums(conv, relations, rel, given[0]), "rgms")


def _arguments(conv, args: tuple, kwargs: dict) -> tuple[dict, dict, dict] | None:
    """(features by node type, edges and their weights by edge type); None if there are other arguments."""
    given = dict(zip(_ARGUMENTS, args), **kwargs)
    if (
        len(args) > 3
        or not given.keys() <= set(_ARGUMENTS)
        or len(given) < len(args) + len(kwargs)
        or any(type(value) is not dict for value in given.values())
    ):
        return None
    return tuple(given.get(name, {}) for name in _ARGUMENTS)


def _relations(conv, x: dict, edges: dict, weights: dict) -> list[_Relation] | Refusal:
    """The edge types that PyG would call a layer for, in its order; ``PASS`` if they are not the operator at all."""
    if conv.aggr not in ("sum", "mean") or not edges.keys() >= weights.keys():
        return PASS
    found = []
    for name, layer in conv.convs.items():
        if name not in edges:
            continue
        if type(layer) not in _KINDS:
            return _TOUCHED if isinstance(layer, tuple(_KINDS)) else PASS
        relation = _relation(name, layer, x, edges[name], weights.get(name))
        if type(relation) is Refusal:
            return relation
        found.append(relation)
    alike = {
        (each.reduce, each.neighbours.weight.dtype, each.neighbours.weight.device, each.edge_index.device)
        for each in found
    }
    results = {(each.name[2], len(each.neighbours.weight)) for each in found}
    if len(alike) != 1 or len(results) != len(
        {kind for kind, _ in results}
    ):  # a result of several widths is an error in PyG
        return PASS
    first = found[0]
    return found if first.reduce is not None and first.neighbours.weight.device == first.edge_index.device else PASS


def _relation(name: tuple[str, str, str], layer, x: dict, index, weight) -> _Relation | Refusal:
    """What a layer does to an edge type; ``PASS`` if that is not the operator, or an error in PyG."""
    kind = _KINDS[type(layer)]
    if type(layer) is SAGEConv and (layer.project or layer.normalize):
        return PASS
    neighbours, own = kind.neighbours(layer), kind.own(layer)
    if type(neighbours) is not Linear or type(own) not in (Linear, NoneType):
        return _TOUCHED
    if not _are_edges(index) or name[0] not in x or name[2] not in x or (weight is not None and not kind.weighted):
        return PASS
    source, destination = x[name[0]], x[name[2]]
    numbers = [source, destination, neighbours.weight, neighbours.bias, own and own.weight, own and own.bias, weight]
    if not _are_numbers([y for y in numbers if y is not None]):
        return PASS
    if (
        (weight is not None and weight.shape != index.shape[1:])
        or source.dim() != 2
        or destination.dim() != 2
        or source.shape[1] != neighbours.weight.shape[1]
        or (own is not None and own.weight.shape != (len(neighbours.weight), destination.shape[1]))
    ):
        return PASS
    return _Relation(name, layer, _REDUCES.get(type(layer.aggr_module)), index, weight, neighbours, own)


def _are_edges(index) -> bool:
    return (
        type(index) is Tensor
        and index.dtype in (torch.int32, torch.int64)
        and index.layout is torch.strided
        and index.dim() == 2
        and index.shape[0] == 2
    )


def _are_numbers(tensors: list) -> bool:
    """Dense tensors of one floating type on one device, none of them empty in its features."""
    return all(
        type(y) in (Tensor, Parameter)
        and y.dtype in FLOATING
        and y.dtype is tensors[0].dtype
        and y.device == tensors[0].device
        and y.layout is torch.strided
        and y.dim() > 0
        and 0 not in y.shape[1:]
        for y in tensors
    )


def _refuse(relations: list[_Relation]) -> Refusal | None:
    for relation in relations:
        layer, linear = relation.layer, [each for each in (relation.neighbours, relation.own) if each is not None]
        if has_hooks(layer) or is_rerouted(layer) or not is_untouched(layer, layer.aggr_module, *linear):
            return _TOUCHED
    return refusal_of(devices.why_not(relations[0].edge_index.device))


class _Known:
    """A graph and the other edge indices that it was made of, held weakly, and their states.

    graph: held by the store where that has copies of its indices to find it by, and else by this.
    """

    def __init__(self, graph: RelGraph, indices: list[Tensor]):
        self.graph = (lambda: graph) if devices.arch_of(graph.device) else weakref.ref(graph)
        self.others = [(weakref.ref(index), index._version) for index in indices[1:]]

    def are(self, indices: list[Tensor]) -> bool:
        return all(
            owner() is index and version == index._version for (owner, version), index in zip(self.others, indices[1:])
        )


KEPT = Handles()
"""Graphs by the first of their edge indices, for indices that come again."""


def _graph_of(relations: list[_Relation], x: dict) -> RelGraph | None:
    """The edges of all relations, kept as other graphs are; None where an index is out of range, an error in PyG."""
    names = tuple(relation.name for relation in relations)
    sources = {kind: len(x[kind]) for kind, _, _ in names}
    destinations = {kind: len(x[kind]) for _, _, kind in names}
    indices = [relation.edge_index for relation in relations]
    lasting = not any(index.is_inference() for index in indices)
    key = (names, *sources.values(), *destinations.values())
    known = KEPT.get(indices[0], key) if lasting else None
    rel = known.graph() if known is not None and known.are(indices) else None
    if rel is not None:
        return rel
    if not all(_in_range(index, sources[name[0]], destinations[name[2]]) for name, index in zip(names, indices)):
        return None
    edges = [(name[0], index[0], name[2], index[1]) for name, index in zip(names, indices)]
    rel = GRAPHS.find_parts(relational_sources.Parts(sources, destinations, names, edges))
    if lasting:
        KEPT.put(indices[0], _Known(rel, indices), key)
    return rel


def _in_range(index: Tensor, sources: int, destinations: int) -> bool:
    if index.shape[1] == 0:
        return True
    least, last_source, last_destination = read(index.min(), index[0].max(), index[1].max())
    return least >= 0 and last_source < sources and last_destination < destinations


def _sums(conv, relations: list[_Relation], rel: RelGraph, features: dict) -> dict[str, Tensor]:
    x = {kind: features[kind] for kind in rel.source_types}
    like, weights = next(iter(x.values())), None
    if any(relation.edge_weight is not None for relation in relations):
        weights = torch.cat(
            [
                like.new_ones(each.edge_index.shape[1]) if each.edge_weight is None else each.edge_weight
                for each in relations
            ]
        )
    matrices = {relation.name: relation.neighbours.weight.t() for relation in relations}
    found = {}
    for kind, sums in api.rgms(rel, x, matrices, weights, relations[0].reduce).items():
        of_kind = [relation for relation in relations if relation.name[2] == kind]
        part = _with_own(sums, features[kind], of_kind)
        part = part / len(of_kind) if conv.aggr == "mean" and len(of_kind) > 1 else part
        # the user may write to a result, which must not be another's memory
        found[kind] = part.clone() if part._base is not None else part
    return found


def _with_own(part: Tensor, x: Tensor, relations: list[_Relation]) -> Tensor:
    """The sums of neighbours, and what the layers add of the destination's own features, and their biases."""
    own = [relation.own for relation in relations if relation.own is not None]
    biases = [each.bias for each in (*own, *(relation.neighbours for relation in relations)) if each.bias is not None]
    bias = _total(biases) if biases else None
    if own:
        return part + F.linear(x, _total([each.weight for each in own]), bias)
    return part if bias is None else part + bias.to(part.dtype)


def _total(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).sum(0)
