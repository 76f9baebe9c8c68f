"""``RGCNConv`` and ``FastRGCNConv`` of PyG: what all relations send, in one operator.

The layers loop over relations, or copy a matrix for every edge. Means are by relation, as PyG's documentation has them;
with ``pyg-lib`` PyG's own faster path divides by nothing instead, which is not imitated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch_geometric.backend
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.conv import FastRGCNConv, RGCNConv

from ...deferred import later
from ...frozen import dataclass
from ...ops.core.executable import OutOfRange
from ...ops.core.operands import autocasts
from ...ops.message.api.spmm import spmm
from ...runtime import devices
from ...structures.checks import FLOATING, plain_tensor, read
from ...structures.derived import Derived
from ...structures.graph import Graph
from ..core.graphs import GRAPHS
from ..core.refusal import PASS, Refusal, refusal_of
from ..exported.making import exporting
from ..few.listed import is_list
from ..scopes import transformed
from .host import HOST, OUT_OF_RANGE
from .layers import has_hooks, is_rerouted
from .releases import EdgeIndex

if TYPE_CHECKING:
    from ...ops.relational import api, few
    from ...structures.relational import graph as relational_graph
    from ...structures.relational.graph import RelGraph
    from ..exported import relations as packaged
else:
    api, few = later(__name__, "...ops.relational.api"), later(__name__, "...ops.relational.few")
    relational_graph = later(__name__, "...structures.relational.graph")
    packaged = later(__name__, "..exported.relations")

_REDUCES = {"add": "sum", "sum": "sum", "mean": "mean"}
_HEURISTIC = "_use_segment_matmul_heuristic_output"
_METHODS = ("message", "aggregate", "update", "message_and_aggregate")


def forward_of(kind: type):
    """``forward`` of ``RGCNConv`` or ``FastRGCNConv``, the class ``kind``."""

    def forward(self, x, edge_index, edge_type=None):
        if self.aggr not in _REDUCES:  # a loop over relations whose aggregations are counted one by one
            return PASS
        traced = torch.compiler.is_compiling()
        if traced and not exporting():
            return PASS  # what is traced is what PyG's operators amount to (``..traced``)
        found = (_packaged_sums if traced else _sums)(self, kind, x, edge_index, edge_type)
        if type(found) is Refusal:
            return found
        out, ends = found
        if kind is RGCNConv:  # which adds to zeros of the default type
            out = out.to(torch.promote_types(out.dtype, torch.get_default_dtype()))
            if not traced:
                _note_heuristic(self)
        elif not traced:
            self.fuse = False
        root, bias = self.root, self.bias
        # in place where types agree: nobody else has the sums, and no gradient needs them
        if root is not None and ends.dtype is root.dtype is out.dtype and not autocasts(ends):
            out = out.addmm_(ends, root)
        elif root is not None:
            out = out + (ends @ root if ends.is_floating_point() else root[ends])
        if bias is not None:
            out = out.add_(bias) if bias.dtype is out.dtype else out + bias
        return out, None if traced else "rgms"  # a package counts its calls

    return forward


def _note_heuristic(layer) -> None:
    """Leave the attribute behind that PyG's ``RGCNConv.forward`` does: without it TorchScript refuses the layer, whose
    source writes to it before it reads it."""
    if torch_geometric.backend.use_segment_matmul is None and not hasattr(layer, _HEURISTIC):
        setattr(layer, _HEURISTIC, False)


def _sums(layer, kind: type, x, edge_index, edge_type):
    """(what the relations send to each destination, the features or numbers of the destinations)."""
    refusal = transformed() or _refuse_layer(layer, kind) or _refuse_edges(edge_index, edge_type)
    if refusal is not None:
        return refusal
    if isinstance(x, tuple) and len(x) != 2:
        return Refusal(f"the features are a {type(x).__name__}")
    sources, ends = x if isinstance(x, tuple) else (x, None)
    embedded = sources is None
    if embedded:
        sources = torch.arange(layer.in_channels_l, device=layer.weight.device)
    ends = sources if not isinstance(x, tuple) else ends
    refusal = (
        _refuse_features(layer, sources, edge_index)
        or _refuse_features(layer, ends, edge_index)
        or _refuse_shapes(layer, sources, ends, edge_index)
    )
    if refusal is not None:
        return refusal
    if sources.is_floating_point() is not ends.is_floating_point():
        return Refusal("features at one end, numbers at the other")
    index, edge_type = plain_tensor(edge_index), plain_tensor(edge_type)
    shape = (ends.shape[0], sources.shape[0])
    weight = layer.weight if layer.num_bases is None else (layer.comp, layer.weight)
    reduce = _REDUCES[layer.aggr]
    if is_list(index, 2) and is_list(edge_type, 1) and sources.is_floating_point() and not autocasts(sources):
        try:
            found = few.few_relations(sources, weight, index[1], index[0], edge_type, shape, reduce)
        except OutOfRange:
            return Refusal(OUT_OF_RANGE)
        if found is not None:
            return found, ends
    try:
        relations = GRAPHS.find_relations(index[0], index[1], edge_type, shape, layer.num_relations)
    except ValueError:
        return Refusal(OUT_OF_RANGE)
    if not sources.is_floating_point():
        # FastRGCNConv takes the number of the node, whatever its feature says
        numbers = None if embedded or kind is FastRGCNConv else sources
        if numbers is not None and not _in_range(numbers, layer.weight.shape[1]):
            return Refusal(OUT_OF_RANGE)
        out = _embedded(layer, relations, numbers, reduce)
        return out if type(out) is Refusal else (out, ends)
    return api.rgms(relations, sources, weight, reduce=reduce), ends


def _packaged_sums(layer, kind: type, x, edge_index, edge_type):
    """`_sums` for a program of a package, whose tensors have no content: of features, on an edge index."""
    sources, ends = x if isinstance(x, tuple) else (x, x)
    if (refusal := _refuse_methods(layer, kind)) is not None:
        return refusal
    if (
        isinstance(edge_index, EdgeIndex)
        or not isinstance(edge_index, Tensor)
        or edge_index.layout is not torch.strided
    ):
        return Refusal(f"the edge index is a {type(edge_index).__name__}")
    for each in (sources, ends):
        if not isinstance(each, Tensor) or each.dtype is not layer.weight.dtype or autocasts(each):
            return Refusal("the features are no matrix of the weights' type")
    weight = layer.weight if layer.num_bases is None else (layer.comp, layer.weight)
    shape, mean = (ends.shape[0], sources.shape[0]), _REDUCES[layer.aggr] == "mean"
    sums = packaged.relational_sums(edge_index, edge_type, shape, layer.num_relations, sources, weight, mean, HOST.name)
    return sums, ends


def _embedded(layer, relations: RelGraph, numbers: Tensor | None, reduce: str) -> Tensor | Refusal:
    """The sum where a source has the row of each matrix that its number says: no product at all; with bases, one that
    needs no matrix of a relation."""
    weight, count = layer.weight, layer.weight.shape[1]
    scale = relations.mean_scale(weight.dtype) if reduce == "mean" else None
    fact = Embedded(count) if layer.num_bases is None else Exchanged(count)
    try:
        found = relations.derived(fact) if numbers is None else fact.of(relations, numbers)
    except ValueError:
        return Refusal(OUT_OF_RANGE)
    if layer.num_bases is None:
        return spmm(found, weight.flatten(0, 1), scale)
    # row n of the matrix of relation r is comp[r] @ weight[:, n]: relations give features, and the number says the
    # matrix
    return api.rgms(found, layer.comp, weight.transpose(0, 1), scale)


def _in_range(numbers: Tensor, count: int) -> bool:
    """Whether all numbers are below ``count``, those of nodes without edges too, and none counts from the end."""
    if len(numbers) == 0:
        return True
    least, most = read(numbers.min(), numbers.max())
    return least >= 0 and most < count


def _column(relations: RelGraph, numbers: Tensor | None) -> Tensor:
    """The number of each edge's source."""
    source = relations.source.long()
    return source if numbers is None else numbers.long().index_select(0, source)


@dataclass(frozen=True)
class Embedded(Derived[Graph]):
    """The edges with a column for each relation and number below ``count``."""

    count: int

    def compute(self, relations: RelGraph) -> Graph:
        return self.of(relations, None)

    def of(self, relations: RelGraph, numbers: Tensor | None) -> Graph:
        shape = (relations.shape[0], relations.num_relations * self.count)
        column = _column(relations, numbers) + relations.relation.long() * self.count
        return Graph.from_coo(relations.destination, column, shape)


@dataclass(frozen=True)
class Exchanged(Derived["RelGraph"]):
    """The edges out of their relations, where the number below ``count`` says the matrix."""

    count: int

    def compute(self, relations: RelGraph) -> RelGraph:
        return self.of(relations, None)

    def of(self, relations: RelGraph, numbers: Tensor | None) -> RelGraph:
        shape = (relations.shape[0], relations.num_relations)
        return relational_graph.RelGraph.from_triples(
            relations.relation, relations.destination, _column(relations, numbers), shape, self.count
        )


def _refuse_layer(layer, kind: type) -> Refusal | None:
    if (refusal := _refuse_methods(layer, kind)) is not None:
        return refusal
    for parameter in (layer.weight, layer.comp):
        if parameter is not None and (
            type(parameter) not in (Tensor, Parameter)
            or parameter.dtype not in FLOATING
            or parameter.device != layer.weight.device
        ):
            return Refusal("the weights are no dense numbers on one device")
    return None


def _refuse_methods(layer, kind: type) -> Refusal | None:
    if any(getattr(type(layer), name) is not getattr(kind, name) for name in _METHODS):
        return Refusal("the layer's methods are the user's")
    if has_hooks(layer):
        return Refusal("the layer has hooks")
    if is_rerouted(layer):
        return Refusal("the layer is explained, decomposed or runs against its edges")
    return None


def _refuse_edges(edge_index, edge_type) -> Refusal | None:
    if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
        return Refusal(f"the edge index is a {type(edge_index).__name__}")
    if not isinstance(edge_type, Tensor) or edge_type.dtype not in (torch.int32, torch.int64):
        return Refusal("the edge types are no integers")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_type.shape != edge_index.shape[1:]:
        return Refusal("the edge types are not one per edge")
    if edge_index.dtype not in (torch.int32, torch.int64):
        return Refusal("the edge index is not an ordinary int64 tensor beside the features")
    if edge_index.device != edge_type.device:
        return Refusal("the edge types are not beside the edge index")
    return None if edge_index.is_cpu else refusal_of(devices.why_not(edge_index.device))


def _refuse_features(layer, x, edge_index) -> Refusal | None:
    if type(x) not in (Tensor, Parameter):
        return Refusal(f"the features are a {type(x).__name__}")
    if x.device != edge_index.device or layer.weight.device != x.device or x.layout is not torch.strided:
        return Refusal("the features are not dense, or not on the device of the edges and the weights")
    if x.is_floating_point():
        fits = x.dim() == 2 and x.dtype is layer.weight.dtype
        return None if fits else Refusal("the features are no matrix of the weights' type")
    if x.dtype not in (torch.int32, torch.int64) or x.dim() != 1:
        return Refusal("the numbers of nodes are no vector of integers")
    return None if layer.num_blocks is None else Refusal("blocks of features that are numbers")


def _refuse_shapes(layer, sources: Tensor, ends: Tensor, edge_index) -> Refusal | None:
    """PyG's own error follows. An ``EdgeIndex`` may say how many nodes there are."""
    if isinstance(edge_index, EdgeIndex):
        rows, columns = edge_index.sparse_size()
        if rows not in (None, len(sources)) or (len(sources) if columns is None else columns) != len(ends):
            return Refusal("the shapes of the edge index and the features do not fit")
    width = layer.weight.shape[1] * (1 if layer.num_blocks is None else layer.weight.shape[2])
    fits = not sources.is_floating_point() or sources.shape[1] == width
    return None if fits else Refusal("the shapes do not fit")
