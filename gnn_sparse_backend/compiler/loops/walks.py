"""Random walks: a kernel that is written at stage III, since each step depends on those before, and is drawn until it
is accepted.
"""

from __future__ import annotations

from ...deferred import ir_builder, tirx
from ...deferred import tir_builder as T
from .neighbours import _below, _State, _unit
from .writing import argument, array, finished, local, long, named


def walks_function(biased: bool) -> tirx.PrimFunc:
    """Walks of ``length`` steps along edges. A node without edges keeps its walk.

    biased: steps are those of node2vec, whose chances are as 1/p back to where the walk came from, 1 to a neighbour of
    that, and 1/q elsewhere: a neighbour is drawn, and taken with its chance over the largest.

    Parameters: walks; length; nodes; edges; stream; of biased ones back, near and far, float64: the chances; start
    (walks,), indptr (nodes + 1,), indices (edges,), ascending in each row where biased; visited (walks * (length + 1),)
    and passed (walks * length,), written: nodes, and edges or -1; all int64.
    """
    with ir_builder.IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("random_walks")
        T.func_attr({"tirx.noalias": True})
        walks, length, nodes, edges = (argument(n, "int64") for n in ("walks", "length", "nodes", "edges"))
        stream = argument("stream", "int64")
        if biased:
            back, near, far = (argument(n, "float64") for n in ("back", "near", "far"))
        start, indptr = array("start", walks, "int64"), array("indptr", nodes + 1, "int64")
        indices = array("indices", edges, "int64")
        visited, passed = array("visited", walks * (length + 1), "int64"), array("passed", walks * length, "int64")
        with T.parallel(0, walks) as walk:
            state = _State(stream, walk, None)
            here, before, taken = (local(n, (1,), "int64") for n in ("here", "before", "taken"))
            drawn, going = local("drawn", (1,), "int64"), local("going", (1,), "int64")
            T.buffer_store(here, start[walk], [0])
            T.buffer_store(before, long(-1), [0])
            T.buffer_store(drawn, long(0), [0])
            T.buffer_store(visited, start[walk], [walk * (length + 1)])
            with T.serial(0, length) as step:
                node = named("node", here[0])
                first, many = named("first", indptr[node]), named("many", indptr[node + 1] - indptr[node])
                T.buffer_store(taken, long(-1), [0])
                T.buffer_store(going, tirx.Cast("int64", many > 0), [0])
                with T.While(going[0] > 0):
                    edge = named("edge", first + _below(state.number(drawn[0]), many))
                    T.buffer_store(drawn, drawn[0] + 1, [0])
                    T.buffer_store(taken, edge, [0])
                    T.buffer_store(going, long(0), [0])
                    if biased:
                        with T.If(tirx.all(before[0] >= 0, many > 1)), T.Then():
                            to = named("to", indices[edge])
                            known = _has(indptr, indices, before[0], to)
                            chance = named(
                                "chance",
                                tirx.if_then_else(to == before[0], back, tirx.if_then_else(known[0] > 0, near, far)),
                            )
                            number = named("number", _unit(state.number(drawn[0])))
                            T.buffer_store(drawn, drawn[0] + 1, [0])
                            with T.If(number >= chance), T.Then():
                                T.buffer_store(going, long(1), [0])
                T.buffer_store(passed, taken[0], [walk * length + step])
                T.buffer_store(before, node, [0])
                with T.If(taken[0] >= 0), T.Then():
                    T.buffer_store(here, indices[taken[0]], [0])
                T.buffer_store(visited, here[0], [walk * (length + 1) + step + 1])
    return finished(builder, "random_walks")


def _has(indptr: tirx.Buffer, indices: tirx.Buffer, row: tirx.Expr, column: tirx.Expr) -> tirx.Buffer:
    """1 where a row has a column, else 0, by bisection."""
    low, high, known = (local(n, (1,), "int64") for n in ("low", "high", "known"))
    row = named("of", row)
    T.buffer_store(low, indptr[row], [0])
    T.buffer_store(high, indptr[row + 1], [0])
    T.buffer_store(known, long(0), [0])
    with T.While(low[0] < high[0]):
        middle = named("middle", (low[0] + high[0]) >> 1)
        value = named("value", indices[middle])
        with T.If(value < column):
            with T.Then():
                T.buffer_store(low, middle + 1, [0])
            with T.Else():
                T.buffer_store(known, tirx.max(known[0], tirx.Cast("int64", value == column)), [0])
                T.buffer_store(high, middle, [0])
    return known
