"""``gsb.rgms``: relational gather-matmul-scatter, the operator of relational graph convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, overload

import torch
from torch import Tensor

from ...runtime.type_names import accumulator_of
from ...structures.relational.graph import RelGraph
from ..core.operands import autocasts, check_dense, is_plain, product_operands
from ..core.partitioned import Partitioned, placed
from ..core.signatures import signature_of
from ..core.traced import Traced
from ..message.checks import check_choice
from .operators import BASIS_PRODUCT, PRODUCT, traced_rel_graph
from .widths import matrices_by_relation, sum_by_shape

_REDUCE = ("sum", "mean")
Weight: TypeAlias = Tensor | tuple[Tensor, Tensor] | Mapping[Any, Tensor]
EdgeWeight: TypeAlias = Tensor | Mapping[Any, Tensor]


@overload
def rgms(
    rel_graph: RelGraph | Partitioned,
    x: Tensor,
    weight: Weight,
    edge_weight: EdgeWeight | None = None,
    reduce: str = "sum",
) -> Tensor: ...


@overload
def rgms(
    rel_graph: RelGraph | Partitioned,
    x: Mapping[str, Tensor],
    weight: Weight,
    edge_weight: EdgeWeight | None = None,
    reduce: str = "sum",
) -> dict[str, Tensor]: ...


@placed(u="x", e="edge_weight", sums=("sum",))
def rgms(
    rel_graph: RelGraph | Partitioned,
    x: Tensor | Mapping[str, Tensor],
    weight: Weight,
    edge_weight: EdgeWeight | None = None,
    reduce: str = "sum",
) -> Tensor | dict[str, Tensor]:
    """``out[i] = sum over edges e into i of edge_weight[e] * x[source of e] @ weight[relation of e]``.

    Relational gather-matmul-scatter (Ye et al., SparseTIR, section 4.4), the sum over relations of a relational graph
    convolution (Schlichtkrull et al., 2018, equation 2). Nothing of the size of the edges times a width is stored, in
    the forward or the backward pass; on a GPU it may be a row for each distinct pair of a node and a relation, where
    that moves fewer bytes than blocks which own rows of the result (``gsb.explain`` says so).

    Args:
        rel_graph: structure of shape (n_dst, n_src) with R relations.
        x: (n_src, F_in) in float32, float64, bfloat16 or float16; or, for a graph with node types, a dict from every
            source type to its (nodes, F_in), where F_in may differ from type to type if ``weight`` is a dict.
        weight: (R, F_in, F_out); (R, B, F_in / B, F_out / B), blocks of block-diagonal matrices; or a pair (comp,
            bases) of (R, B) and (B, F_in, F_out), whose relation r has the matrix ``sum over b of comp[r, b] *
            bases[b]``. These are made for as many relations at a time as fit 8 MiB, or for as many as there are bases
            if that is more, in the forward and the backward pass, compiled or not: memory does not grow with R. Or, for
            a graph whose relations have names, a dict from every relation to its matrix, (F_in of its source type,
            F_out of its destination type), or the blocks of its diagonal. Same type as ``x``.
        edge_weight: None for ones, or (E,) or (E, 1) numbers in the user's edge order, of the type of ``x``; or a dict
            from names of relations (``rel_graph.relations``) to those of their edges, all of them.
        reduce: ``"sum"``; or ``"mean"``, which divides what each relation sends to a destination by the number of its
            edges into that destination: the normalisation 1 / c_{i,r} of the paper, ``aggr="mean"`` of PyG's RGCNConv,
            and ``norm`` as DGL's examples of RelGraphConv make it. Edge weights do not change the divisor.

    Returns:
        (n_dst, F_out), contiguous, in the type of ``x``; if ``x`` is a dict, a dict from every destination type. Sums
        are accumulated in at least float32. The bits are the same at every run and for any number of threads. Gradients
        of any order flow to x, weight and edge_weight. Under autocast the operands are cast to its type, as those of
        products of matrices are. Works under ``torch.compile`` without a graph break; on node types of several widths
        once a graph has seen a call.

    Raises:
        TypeError: an operand is not a dense floating tensor, or types differ.
        ValueError: a shape or device does not fit, or ``reduce`` is unknown.
    """
    if isinstance(rel_graph, Partitioned):
        return rel_graph.call(rgms, locals())
    if not isinstance(rel_graph, RelGraph):
        raise TypeError(
            f"rgms: rel_graph must be a gsb.RelGraph, got {type(rel_graph).__name__}; make one with "
            "RelGraph.from_triples, from_graph, from_edge_index, from_dgl or from_pyg"
        )
    check_choice("rgms", "reduce", reduce, _REDUCE)
    mean = reduce == "mean"
    signature = signature_of(("rgms",), (x, weight, edge_weight))
    if signature is not None and signature in rel_graph.calls and not autocasts(x):
        return PRODUCT(rel_graph, (x, _blocks(weight), _of_sums(edge_weight, x)), (mean, False, ""))
    by_type = isinstance(x, Mapping)
    if isinstance(edge_weight, Mapping):
        names = None if rel_graph.edge_counts is None else dict(zip(rel_graph.relations, rel_graph.edge_counts))
        edge_weight = _joined("edge_weight", edge_weight, names, "relation")
    if isinstance(weight, Mapping):
        matrices = matrices_by_relation(weight, rel_graph)
        if by_type and _of_several_widths(x, matrices, rel_graph):
            if edge_weight is not None:
                check_dense("rgms", "edge_weight", edge_weight)
                _check_edges(edge_weight, rel_graph)
            return sum_by_shape(lambda *given: rgms(*given, reduce), rel_graph, x, matrices, edge_weight)
        if len({w.shape for w in matrices}) > 1:
            raise ValueError(
                f"rgms: matrices of several shapes need x as a dict by source type, got {type(x).__name__}"
            )
        weight = torch.stack(matrices)
    if by_type:
        x = _joined("x", x, rel_graph.source_types, "source type")
    basis = isinstance(weight, (tuple, list))
    operands = {
        "x": x,
        **({"comp": weight[0], "bases": weight[1]} if basis and len(weight) == 2 else {"weight": weight}),
    }
    if edge_weight is not None:
        operands["edge_weight"] = edge_weight
    x, *weights = product_operands("rgms", "graph", rel_graph.device, operands)
    a = weights.pop() if edge_weight is not None else None
    _check_rows(x, a, rel_graph)
    a = _of_sums(a, x)
    if basis:
        _check_bases(*weights, x, rel_graph)
        out = BASIS_PRODUCT(_structure(rel_graph, x, *weights, a), (x, *weights, a), (mean, False))
    else:
        _check_matrices(weights[0], x, rel_graph)
        if signature is not None:
            rel_graph.calls.keep(signature, True)
        structure = _structure(rel_graph, x, *weights, a)
        out = PRODUCT(structure, (x, _blocks(weights[0]), a), (mean, False, ""))
    if not by_type:
        return out
    counts = rel_graph.destination_types
    return dict(zip(counts, (out,) if len(counts) == 1 else out.split(list(counts.values()))))


def _of_several_widths(x: Mapping, matrices: list[Tensor], rel: RelGraph) -> bool:
    _check_entries("x", x, rel.source_types, "source type")
    return len({w.shape for w in matrices}) > 1 or len({y.shape[1:] for y in x.values()}) > 1


def _check_bases(comp: Tensor, bases: Tensor, x: Tensor, rel: RelGraph) -> None:
    relations, count = rel.num_relations, bases.shape[0] if bases.dim() == 3 else -1
    if comp.shape != (relations, count):
        raise ValueError(
            f"rgms: comp must have shape (relations, bases) = ({relations}, {max(count, 0)}), got "
            f"{tuple(comp.shape)} beside bases {tuple(bases.shape)}"
        )
    _check_features(x, bases, bases.shape[1])


def _structure(rel: RelGraph, *operands: Tensor | None) -> RelGraph | Traced:
    """The graph, or what stands for it where such operands are traced."""
    return rel if is_plain(*operands) else traced_rel_graph(rel)


def _blocks(weight: Tensor) -> Tensor:
    """Matrices with the blocks on their diagonals: (R, B, F_in / B, F_out / B)."""
    return weight if weight.dim() == 4 else weight.unsqueeze(1)


def _of_sums(edge_weight: Tensor | None, x: Tensor) -> Tensor | None:
    """Numbers of edges, (E,), in the type that products of ``x`` are added up in."""
    return None if edge_weight is None else edge_weight.flatten().to(accumulator_of(x.dtype))


def _check_matrices(weight: Tensor, x: Tensor, rel: RelGraph) -> None:
    if weight.dim() not in (3, 4) or weight.shape[0] != rel.num_relations:
        raise ValueError(
            f"rgms: weight must have shape ({rel.num_relations}, F_in, F_out) or ({rel.num_relations}, blocks, "
            f"F_in / blocks, F_out / blocks), one per relation of the graph, got {tuple(weight.shape)}"
        )
    _check_features(x, weight, weight.shape[1] * (weight.shape[2] if weight.dim() == 4 else 1))


def _check_features(x: Tensor, weight: Tensor, wanted: int) -> None:
    if x.shape[1] != wanted:
        raise ValueError(
            f"rgms: the rows of x {tuple(x.shape)} and the matrices of weight {tuple(weight.shape)} do not fit: "
            f"{x.shape[1]} against {wanted}"
        )


def _check_rows(x: Tensor, a: Tensor | None, rel: RelGraph) -> None:
    if x.dim() != 2 or x.shape[0] != rel.shape[1]:
        raise ValueError(
            f"rgms: x must have shape (n_src, F_in) with n_src = {rel.shape[1]}, one row per source of the "
            f"graph, got {tuple(x.shape)}"
        )
    if a is not None:
        _check_edges(a, rel)


def _check_edges(a: Tensor, rel: RelGraph) -> None:
    if tuple(a.shape) not in ((rel.num_edges,), (rel.num_edges, 1)):
        raise ValueError(
            f"rgms: edge_weight must have shape ({rel.num_edges},) or ({rel.num_edges}, 1), one per edge of the "
            f"graph, got {tuple(a.shape)}"
        )


def _check_entries(name: str, given: Mapping, counts: dict | None, what: str) -> None:
    """Raise ValueError unless there is a tensor for each node type or relation, with as many rows as ``counts``
    says.
    """
    if counts is None:
        raise ValueError(f"rgms: {name} is a dict, but the nodes and edges of this graph have no types: give a tensor")
    missing, more = [k for k in counts if k not in given], [k for k in given if k not in counts]
    if missing or more:
        raise ValueError(
            f"rgms: {name} must have an entry for every {what} {list(counts)}: "
            + (f"{missing[0]!r} is missing" if missing else f"{more[0]!r} is none")
        )
    for key, count in counts.items():
        if not isinstance(given[key], Tensor) or given[key].dim() == 0 or given[key].shape[0] != count:
            shape = tuple(given[key].shape) if isinstance(given[key], Tensor) else type(given[key]).__name__
            raise ValueError(f"rgms: {name}[{key!r}] must be a tensor with {count} rows, got {shape}")


def _joined(name: str, given: Mapping, counts: dict | None, what: str) -> Tensor:
    """One tensor of those by node type or relation."""
    _check_entries(name, given, counts, what)
    parts = [given[key] for key in counts]
    if len({part.shape[1:] for part in parts}) > 1:
        raise ValueError(
            f"rgms: {name} must have as many features for every {what}, got "
            + ", ".join(f"{tuple(part.shape)} for {key!r}" for key, part in zip(counts, parts))
            + ("; with other widths, give weight as a dict from relations" if name == "x" else "")
        )
    return parts[0] if len(parts) == 1 else torch.cat(parts) if parts else torch.empty(0, 0)
