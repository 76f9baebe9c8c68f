"""Messages of ``update_all`` that DGL computes for every edge before it reduces them: those that it has no operator
for.

A message is temporary by construction, so it is lazy, and its reduction runs one operator::

    graph.update_all(fn.u_add_v("h", "h", "m"), fn.sum("m", "out"))
    graph.update_all(lambda edges: {"m": edges.src["h"] * edges.data["w"]}, fn.sum("m", "out"))

For the second, ``edges.src["h"]`` and ``edges.dst["h"]``, which DGL gathers to every edge before it calls the function,
are gathered when they are used. So they are in ``apply_edges``, whose results stay lazy where edge features are
temporary. Functions of some of the edges stay DGL's; reduce functions of users are called in ``mailbox``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from dgl import ops
from dgl.base import is_all
from dgl.core import is_builtin
from dgl.frame import Column

from ..lazy import gather
from ..scopes import current, transformed
from . import relational
from .host import HOST, GraphEnd
from .lazy_edges import OfThread, computed, is_temporary, region, temporary_features
from .operands import refuse
from .structure import only_graph_of

_passing = OfThread()
"""The graph whose messages are to be computed next in this thread, for a reduction."""


def make_messages(original: Callable) -> Callable:
    """``dgl.core.message_passing`` with lazy messages, and those of ``RelGraphConv`` in one operator."""

    def lazily(g, mfunc, rfunc, afunc):
        with region(g, mfunc):
            return original(g, _Lazily(mfunc) if callable(mfunc) else mfunc, rfunc, afunc)

    of_functions = HOST.admit(lazily, "rgms", relational.message_passing)

    @functools.wraps(original)
    def message_passing(g, mfunc, rfunc, afunc):
        if not is_builtin(mfunc):
            return of_functions(g, mfunc, rfunc, afunc)
        if is_builtin(rfunc) and hasattr(ops, f"{mfunc.name}_{rfunc.name}"):
            return original(g, mfunc, rfunc, afunc)  # DGL has one operator for both
        _passing.graph = g
        try:
            with region(g):
                return original(g, mfunc, rfunc, afunc)
        finally:
            _passing.graph = None

    return message_passing


def make_values(original: Callable) -> Callable:
    """``dgl.core.invoke_gsddmm``, which computes messages, and features that ``apply_edges`` stores."""

    @functools.wraps(original)
    def invoke_gsddmm(graph, func):
        passing, _passing.graph = _passing.graph, None
        if passing is not graph:
            return original(graph, func)
        with temporary_features(graph):
            return original(graph, func)

    return invoke_gsddmm


def make_features(original: Callable) -> Callable:
    """``dgl.core.invoke_edge_udf`` that gives all edges lazy features."""

    @functools.wraps(original)
    def invoke_edge_udf(graph, eid, etype, func, *, orig_eid=None):
        if type(func) is _Lazily or not is_all(eid):
            return original(graph, eid, etype, func, orig_eid=orig_eid)
        with region(graph, func):
            found = original(graph, eid, etype, _Lazily(func), orig_eid=orig_eid)
            return found if is_temporary(graph) else computed(found, "the features of all edges are stored")

    return invoke_edge_udf


class _Lazily:
    """A function of an ``EdgeBatch`` of all edges, called with lazy features of their ends."""

    def __init__(self, function: Callable):
        self.function = function

    def __call__(self, edges):
        graph = None if current() is None or transformed() else only_graph_of(edges._graph._graph)
        if graph is not None and graph.num_edges:
            _make_lazy(edges._src_data, GraphEnd(graph, 1))
            _make_lazy(edges._dst_data, GraphEnd(graph, 0))
        return self.function(edges)


class _EndColumn(Column):
    """A column of node features at an end of all edges."""

    @property
    def data(self):
        if self.index is not None and refuse(self.storage) is None and self.storage.shape[0] == self.end.size:
            self.storage = gather(HOST, self.end, self.storage)
            self.index = None
        return Column.data.fget(self)

    @data.setter
    def data(self, value):
        Column.data.fset(self, value)


def _make_lazy(frame, end: GraphEnd) -> None:
    """Let the columns of a frame that DGL has just made for an end of all edges gather lazily."""
    for column in frame._columns.values():
        if (
            type(column) is Column
            and column.device is None
            and column.deferred_dtype is None
            and column.index is not None
            and getattr(column.index, "shape", None) == (end.count,)
        ):
            column.__class__ = _EndColumn
            column.end = end
