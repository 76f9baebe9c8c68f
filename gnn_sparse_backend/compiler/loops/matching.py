"""Nodes in pairs, greedily: a kernel that is written at stage III, since each pair depends on those before."""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .writing import argument, array, finished, local, long, named


def matching_function(weight: str) -> tirx.PrimFunc:
    """Each node in turn, unless somebody has it, and the neighbour that is free with it: the first one, or where edges
    have weights the last of those with the largest, none below 0.

    Parameters: nodes; edges; order (nodes,) int64, whose turn it is; indptr (nodes + 1,) and indices (edges,) int64;
    weights (edges,) of type ``weight``, where that is not ""; found (nodes,) int64, written: the lower number of a
    node's pair.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("matched_nodes")
        T.func_attr({"tirx.noalias": True})
        nodes, edges = argument("nodes", "int64"), argument("edges", "int64")
        order, indptr = array("order", nodes, "int64"), array("indptr", nodes + 1, "int64")
        indices = array("indices", edges, "int64")
        weights = array("weights", edges, weight) if weight else None
        found = array("found", nodes, "int64")
        other, going = local("other", (1,), "int64"), local("at", (1,), "int64")
        most = local("most", (1,), weight or "int64")
        with T.serial(0, nodes) as i:
            T.buffer_store(found, long(-1), [i])
        with T.serial(0, nodes) as i:
            node = named("node", order[i])
            with T.If(found[node] < 0), T.Then():
                T.buffer_store(other, node, [0])
                T.buffer_store(going, indptr[node], [0])
                T.buffer_store(most, tirx.const(0, weight or "int64"), [0])
                with T.While(going[0] < indptr[node + 1]):
                    e = named("e", going[0])
                    neighbour = named("neighbour", indices[e])
                    free = tirx.all(found[neighbour] < 0, neighbour != node)
                    T.buffer_store(going, e + 1, [0])
                    if weights is None:
                        with T.If(free), T.Then():
                            T.buffer_store(other, neighbour, [0])
                            T.buffer_store(going, indptr[node + 1], [0])
                    else:
                        with T.If(tirx.all(free, weights[e] >= most[0])), T.Then():
                            T.buffer_store(other, neighbour, [0])
                            T.buffer_store(most, weights[e], [0])
                pair = named("pair", tirx.min(node, other[0]))
                partner = named("partner", other[0])
                T.buffer_store(found, pair, [node])
                T.buffer_store(found, pair, [partner])
    return finished(builder, "matched_nodes")
