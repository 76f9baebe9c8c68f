"""``HeteroGraphConv`` of ``GraphConv`` layers in DGL: the sums of all relations in one operator.

DGL calls a layer for each edge type: a sum of neighbours, a product and two scalings, each with a result of its own,
and the layers' results are stacked and added. That is relational gather-matmul-scatter: its relations are the edge
types, and the normalisation is a number per edge. Layers of other kinds are called one by one, as DGL does, and so are
those with something of the user's in them.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
from dgl import DGLGraph
from dgl.nn.pytorch import hetero as dgl_hetero
from dgl.nn.pytorch.conv import GraphConv
from torch import Tensor

from ...deferred import later
from ...frozen import dataclass
from ...planner.cpu.listed import FEW
from ...structures.derived import Derived
from ..core.modules import is_untouched
from ..core.refusal import PASS, Refusal
from ..scopes import transformed
from .operands import refuse
from .relations import edges_of_types, is_first_sight
from .structure import edges_in

if TYPE_CHECKING:
    from ...ops.relational import api
    from ...structures.relational.graph import RelGraph
else:
    api = later(__name__, "...ops.relational.api")

_REDUCES = {dgl_hetero.get_aggregate_fn(name).keywords["fn"]: name for name in ("sum", "mean")}


class _Relation(NamedTuple):
    """An edge type that takes part: its number and name, the layer, and the layer's arguments."""

    number: int
    name: tuple[str, str, str]
    layer: GraphConv
    weight: Tensor
    edge_weight: Tensor | None


def forward(conv, g, inputs, mod_args=None, mod_kwargs=None):
    """``HeteroGraphConv.forward`` in one operator."""
    if torch.compiler.is_compiling() or not _is_candidate(conv, g):
        return PASS
    # to bring the edges into rows takes longer than layers one by one, and most blocks are used once
    if edges_in(g._graph) <= FEW.features and is_first_sight(g):
        return PASS
    if (refusal := transformed()) is not None:
        return refusal
    skips = isinstance(inputs, tuple) or g.is_block
    sources, destinations = inputs if isinstance(inputs, tuple) else (inputs, inputs)
    if g.is_block and destinations is inputs:
        destinations = {kind: x[: g.num_dst_nodes(kind)] for kind, x in inputs.items()}
    relations = _relations(conv, g, sources, destinations, skips, mod_args or {}, mod_kwargs or {})
    if type(relations) is Refusal:
        return relations
    if (refusal := _refuse_operands(relations, g, sources, destinations)) is not None:
        return refusal
    rel = edges_of_types(g, tuple(relation.number for relation in relations))
    return Refusal("no edges") if rel.num_edges == 0 else (_sums(conv, g, relations, rel, sources), "rgms")


def _is_candidate(conv, g) -> bool:
    """Whether this is the operator at all: sums or means over relations of nothing but ``GraphConv``."""
    return (
        isinstance(g, DGLGraph)
        and _reduce_of(conv) is not None
        and len(conv.mods) > 0
        and all(isinstance(layer, GraphConv) for layer in conv.mods.values())
    )


def _reduce_of(conv) -> str | None:
    aggregate = conv.agg_fn
    if type(aggregate) is not functools.partial or aggregate.func is not dgl_hetero._agg_func:
        return None
    return _REDUCES.get(aggregate.keywords.get("fn"))


def _relations(conv, g, sources, destinations, skips, mod_args, mod_kwargs) -> list[_Relation] | Refusal:
    """The edge types that DGL would call a layer for, in its order."""
    found = []
    for number, name in enumerate(g.canonical_etypes):
        source, etype, destination = name
        if source not in sources:
            continue
        if destination not in destinations:
            if skips:
                continue
            return Refusal("a destination has no features")  # an error in DGL
        try:
            layer = conv._get_module(name)
        except KeyError:
            return Refusal("an edge type has no layer")
        if type(layer) is not GraphConv or not is_untouched(layer):
            return Refusal("a layer is the user's, or has hooks")
        if layer._activation is not None or not layer._allow_zero_in_degree:
            return Refusal("a layer has an activation, or checks degrees")
        given = dict(zip(("weight", "edge_weight"), mod_args.get(etype, ())), **mod_kwargs.get(etype, {}))
        if not given.keys() <= {"weight", "edge_weight"} or len(mod_args.get(etype, ())) > 2:
            return Refusal("unknown arguments of a layer")
        own, other = layer.weight, given.get("weight")
        if (own is None) == (other is None):  # two are an error in DGL
            return Refusal("a layer has no weight, or two")
        found.append(_Relation(number, name, layer, own if other is None else other, given.get("edge_weight")))
    return found


def _refuse_operands(relations: list[_Relation], g, sources, destinations) -> Refusal | None:
    if not relations:
        return Refusal("no relation has features")
    x, first = sources[relations[0].name[0]], relations[0].weight
    widths: dict[str, int] = {}
    if (refusal := refuse(x, first)) is not None:
        return refusal
    for relation in relations:
        source, _, destination = relation.name
        y, edges = sources[source], g.num_edges(relation.name)
        if y is None:
            return Refusal("missing feature")
        for operand in (y, destinations[destination], relation.weight, relation.edge_weight, relation.layer.bias):
            if operand is not None and (refusal := refuse(x, operand)) is not None:
                return refusal
        if (
            y.dim() != 2
            or len(y) != g.num_src_nodes(source)
            or relation.weight.dim() != 2
            or len(relation.weight) != y.shape[1]
        ):
            return Refusal("the features do not fit the layers")
        if widths.setdefault(destination, relation.weight.shape[1]) != relation.weight.shape[1]:  # an error in DGL
            return Refusal("results of several widths for one node type")
        if relation.edge_weight is not None and tuple(relation.edge_weight.shape) not in ((edges,), (edges, 1)):
            return Refusal("edge weights are not one number per edge")
    return None


def _sums(conv, g, relations: list[_Relation], rel: RelGraph, sources) -> dict[str, Tensor]:
    """The results by destination type, in DGL's order: users draw dropouts for one after the other."""
    x = {kind: sources[kind] for kind in rel.source_types}
    if torch.is_grad_enabled():
        # somebody may write to them before the gradient of a matrix reads them: DGL, which sums first, has kept sums
        narrow = {relation.name[0] for relation in relations if relation.weight.shape[0] <= relation.weight.shape[1]}
        x = {kind: each.clone() if kind in narrow else each for kind, each in x.items()}
    like = next(iter(x.values()))
    norms = tuple(relation.layer._norm for relation in relations)
    mean = set(norms) == {"right"}
    numbers = [None if mean else _scale_of(rel, norms, like.dtype), _given(relations, rel, like)]
    numbers = [number for number in numbers if number is not None]
    weight = {relation.name: relation.weight for relation in relations}
    sums = api.rgms(
        rel, x, weight, functools.reduce(torch.mul, numbers) if numbers else None, "mean" if mean else "sum"
    )
    found, divides = {}, _reduce_of(conv) == "mean"
    for kind in g.dsttypes:
        if kind not in sums:
            continue
        part = sums[kind]
        layers = [relation.layer for relation in relations if relation.name[2] == kind]
        part = _ended(part, layers, like.dtype)
        part = part / len(layers) if divides and len(layers) > 1 else part
        # in eager mode the user may write to a result, which must not be another's memory
        found[kind] = part.clone() if part._base is not None else part
    return found


def _ended(part: Tensor, layers: list[GraphConv], dtype: torch.dtype) -> Tensor:
    """The sum over layers of their relations' sums, as ``GraphConv`` ends: scaled, and with its bias.

    Scaling and bias bring what autocast has made of a product back to the type of the features.
    """
    biases = [layer.bias for layer in layers if layer.bias is not None]
    if biases or any(layer._norm in ("right", "both") for layer in layers):
        part = part.to(dtype)
    return part if not biases else part + (biases[0] if len(biases) == 1 else torch.stack(biases).sum(0))


def _given(relations: list[_Relation], rel: RelGraph, x: Tensor) -> Tensor | None:
    """(edges,) the edge weights that the user gives, ones where none."""
    if all(relation.edge_weight is None for relation in relations):
        return None
    return torch.cat(
        [
            x.new_ones(count) if relation.edge_weight is None else relation.edge_weight.flatten()
            for relation, count in zip(relations, rel.edge_counts)
        ]
    )


_POWERS = {"none": (0.0, 0.0), "left": (-1.0, 0.0), "right": (0.0, -1.0), "both": (-0.5, -0.5)}
"""Powers by ``norm`` of the numbers of a relation's edges out of the source, and into the destination."""


def _scale_of(rel: RelGraph, norms: tuple[str, ...], dtype: torch.dtype) -> Tensor | None:
    """(edges,) what the layers' normalisations multiply each edge by; None for ones."""
    if set(norms) == {"none"}:
        return None

    return rel.derived(Norms(norms, dtype))


@dataclass(frozen=True)
class Norms(Derived[Tensor]):
    """(edges,) what normalisations, one for each relation, multiply each edge by."""

    norms: tuple[str, ...]
    dtype: torch.dtype

    def compute(self, rel: RelGraph) -> Tensor:
        with torch.inference_mode(False):
            of_relations = torch.tensor([_POWERS[norm] for norm in self.norms], dtype=torch.float64)
            powers = of_relations.to(rel.device)[rel.relation.long()]
            scale = _degree(rel, True) ** powers[:, 0] * _degree(rel, False) ** powers[:, 1]
            return scale.to(self.dtype)


def _degree(rel: RelGraph, transposed: bool) -> Tensor:
    """(edges,) of each edge: how many of its relation share its destination; its source where ``transposed``."""
    side = rel.side(transposed)
    return side.pairs.indptr.diff().double().index_select(0, side.pair_of_edge)
