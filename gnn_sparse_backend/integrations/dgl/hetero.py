"""``_gspmm_hetero`` and ``_gsddmm_hetero`` of DGL: one operator on all edge types of a graph at once.

They are below DGL's autograd. Node features come by node type, edge features and edge results by edge type; what
several edge types send to one node type is reduced together. Conventions, measured: node types without edges into them
get an empty float32 tensor; the args of an operand that is not read are empty, as those of sums are; args by type are
(n, 1) for scalar features, where all others are (n,); of equal messages the first edge type's first edge is chosen.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch

from ...ops.message.calls import run_aggregate, run_edge_map
from ...structures.graph import Graph
from ..core.refusal import Refusal
from .operands import PLACES, graph_of_operands
from .sddmm import form_of, reduced_dimensions
from .spmm import EXTREMES, MESSAGES, TOTALS
from .structure import graph_of

_ENDS = {"u": 0, "src": 0, "v": 1, "dst": 1}


def spmm(gidx, op, reduce_op, u_len, u_and_e_tuple):
    """``_gspmm_hetero``: ``(gidx, op, reduce_op, u_len, features) -> (v, (arg_u, arg_e, arg_u_ntype, arg_e_etype))``.

    features: u_len tensors or None by source type, then those by edge type. v and the args are by destination type.
    """
    if op not in MESSAGES:
        return Refusal("unknown op")
    if reduce_op not in ("sum", "max", "min"):
        return Refusal("unknown reduce")
    relations = _relations(gidx, op, u_and_e_tuple[:u_len], u_and_e_tuple[u_len:], MESSAGES[op][1], "u", "e")
    if type(relations) is Refusal:
        return relations
    if relations[0].graph.num_edges == 0:
        return Refusal("the first edge type has no edges: DGL computes nothing")
    node_types = gidx.number_of_ntypes()
    if reduce_op == "sum":
        return _totals(relations, op, node_types), "gspmm_hetero"
    return _extremes(relations, op, reduce_op, node_types, getattr(torch, gidx.dtype)), "gspmm_hetero"


def sddmm(gidx, op, lhs_len, lhs_target="u", rhs_target="v", lhs_and_rhs_tuple=None):
    """``_gsddmm_hetero``: ``(gidx, op, lhs_len, lhs_target, rhs_target, features) -> results by edge type``.

    features: lhs_len tensors or None by the type of the left target, then those by the type of the right one.
    """
    if lhs_target not in PLACES or rhs_target not in PLACES:
        return Refusal("unknown target")
    try:
        of = form_of(op, lhs_target, rhs_target)
    except KeyError:
        return Refusal("unknown op")
    lhs, rhs = lhs_and_rhs_tuple[:lhs_len], lhs_and_rhs_tuple[lhs_len:]
    relations = _relations(gidx, op, lhs, rhs, of.places, lhs_target, rhs_target)
    if type(relations) is Refusal:
        return relations
    values = [run_edge_map(of, each.graph, each.operands, reduced_dimensions(op, each.operands)) for each in relations]
    return tuple(values), "gsddmm_hetero"


class _Relation(NamedTuple):
    """One edge type of a call: its number, source and destination type, graph, and operands."""

    number: int
    source: int
    destination: int
    graph: Graph
    operands: list


def _relations(gidx, op: str, lhs, rhs, places, lhs_target: str, rhs_target: str) -> list[_Relation] | Refusal:
    """The edge types of a call."""
    found: list[_Relation] = []
    for number in range(gidx.number_of_etypes()):
        ends = gidx.metagraph.find_edge(number)
        operands = []
        if op != "copy_rhs":
            operands.append(lhs[number if lhs_target not in _ENDS else ends[_ENDS[lhs_target]]])
        if op != "copy_lhs":
            operands.append(rhs[number if rhs_target not in _ENDS else ends[_ENDS[rhs_target]]])
        graph = graph_of_operands(gidx, op, places, *operands, find=partial(graph_of, edge_type=number))
        if type(graph) is Refusal:
            return graph
        if found and any(
            x.shape[1:] != first.shape[1:] or x.dtype is not first.dtype
            for x, first in zip(operands, found[0].operands)
        ):
            return Refusal("features of edge types differ in shape or type")
        found.append(_Relation(number, *ends, graph, operands))
    return found or Refusal("no edge types")


def _totals(relations, op: str, node_types: int) -> tuple:
    out: list = [None] * node_types
    for each in relations:
        part = run_aggregate(TOTALS[op, "sum"], each.graph, each.operands)
        before = out[each.destination]
        out[each.destination] = part if before is None else before.add_(part)
    return _without_none(out), _args_of(out, False, False, ())


def _extremes(relations, op: str, reduce: str, node_types: int, index: torch.dtype) -> tuple:
    reads_u, reads_e = op != "copy_rhs", op != "copy_lhs"
    wanted = (("column",) if reads_u else ()) + (("number",) if reads_e else ())
    best: list = [None] * node_types  # by node type: values, args, and for each arg the type that it counts in
    for each in relations:
        values, *args = run_aggregate(EXTREMES[op, reduce, "first"], each.graph, each.operands, wanted)
        kinds = ((each.source,) if reads_u else ()) + ((each.number,) if reads_e else ())
        there = best[each.destination]
        if there is None:
            worst = torch.full_like(values, float("-inf") if reduce == "max" else float("inf"))
            there = (
                worst,
                [torch.zeros_like(values, dtype=index) for _ in args],
                [torch.full_like(values, -1, dtype=index) for _ in args],
            )
            best[each.destination] = there
        better = values > there[0] if reduce == "max" else values < there[0]
        for kept, new in zip((there[0], *there[1]), (values, *args)):
            kept.copy_(torch.where(better, new.to(kept.dtype), kept))
        for kept, kind in zip(there[2], kinds):
            kept.masked_fill_(better, kind)
    return _without_none([b and b[0] for b in best]), _args_of(best, reads_u, reads_e, relations[0].operands)


def _args_of(best: list, reads_u: bool, reads_e: bool, operands) -> tuple:
    """(arg_u, arg_e, arg_u_ntype, arg_e_etype), each by node type, in DGL's shapes."""
    lists: tuple = ([], [], [], [])
    scalars = [x.dim() == 1 for x in operands]
    for there in best:
        at = 0
        for args, kinds, reads in ((lists[0], lists[2], reads_u), (lists[1], lists[3], reads_e)):
            if there is None or not reads:
                args.append(None)
                kinds.append(None if there is None else torch.empty(0, dtype=torch.int64))
                continue
            arg, kind = there[1][at], there[2][at]
            if all(scalars):
                kind = kind.unsqueeze(-1)
            elif scalars[at]:
                arg = arg.squeeze(-1)
            args.append(arg)
            kinds.append(kind)
            at += 1
    return lists


def _without_none(out: list) -> tuple:
    return tuple(torch.empty(0) if v is None else v for v in out)
