"""One call of a reduce function for all nodes that have messages, where it does nothing but what `rows` knows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from dgl import ops
from dgl.frame import Frame
from torch import Tensor

from ...core.counters import fallback
from ...core.refusal import Refusal
from ...scopes import transformed
from ..host import HOST
from .rows import EDGE, NODE, Rows, Unknown, in_numbers

_OPERATOR = "reduce_function"
UNKNOWN = Refusal("a reduce function that does more than is known to treat each node for itself")


class Inbox:
    """What a reduce function is given, as a ``NodeBatch`` of DGL. Nodes are those that have messages.

    some: (nodes,) their numbers; None where all have.
    """

    def __init__(self, graph, messages: Mapping[str, Tensor], some: Tensor | None):
        self.graph, self.some = graph, some
        self.mailbox = {name: Rows(self, x, EDGE) for name, x in messages.items()}
        self.data = _Data(self)

    def __getattr__(self, name: str):
        raise Unknown(f"nodes.{name}")

    def of_nodes(self, x: Tensor) -> Tensor:
        return x if self.some is None else x.index_select(0, self.some)

    def degrees(self) -> Tensor:
        return self.of_nodes(self.graph.in_degrees().double())

    def at_edges(self, x: Tensor) -> Tensor:
        """Numbers of the nodes, at their edges."""
        if self.some is not None:
            x = x.new_zeros(self.graph.num_dst_nodes(), *x.shape[1:]).index_copy(0, self.some, x)
        return x.index_select(0, self.graph.edges()[1].long())

    def reduced(self, x: Tensor, reduce: str) -> Tensor:
        return self.of_nodes(getattr(ops, f"copy_e_{reduce}")(self.graph, x))

    def softmax(self, x: Tensor) -> Tensor:
        return ops.edge_softmax(self.graph, x)


class _Data(Mapping):
    """Features of the nodes."""

    def __init__(self, inbox: Inbox):
        self.inbox, self.frame = inbox, inbox.graph.dstdata

    def __getitem__(self, name: str) -> Rows:
        return Rows(self.inbox, self.inbox.of_nodes(self.frame[name]), NODE)

    def __iter__(self):
        return iter(self.frame)

    def __len__(self):
        return len(self.frame)


def make_reduced(original: Callable) -> Callable:
    """``dgl.core.invoke_udf_reduce`` that calls a function once, where it knows all that the function does."""

    @functools.wraps(original)
    def invoke_udf_reduce(graph, func, msgdata, *, orig_nid=None):
        found = _reduced(graph, func, msgdata)
        if type(found) is Refusal:
            fallback(HOST.name, _OPERATOR, found.reason)
            return original(graph, func, in_numbers(msgdata, "a reduce function"), orig_nid=orig_nid)
        return found

    return invoke_udf_reduce


def _reduced(graph, func: Callable, messages: Mapping[str, Tensor]) -> Frame | Refusal:
    """The frame of results."""
    if (refusal := transformed()) is not None:
        return refusal
    if not graph.num_edges():
        return Refusal("no edges")
    degrees = graph.in_degrees()
    some = None if bool(degrees.all()) else degrees.nonzero().view(-1)
    frame = graph._node_frames[graph.get_ntype_id_from_dst(graph.dsttypes[0])]
    if some is not None and frame._initializers:
        return UNKNOWN
    try:
        results = func(Inbox(graph, messages, some))
        if not all(isinstance(x, Rows) and x.at == NODE for x in results.values()):
            return UNKNOWN
    except (Unknown, TypeError, AttributeError, ValueError, IndexError, RuntimeError):
        return UNKNOWN  # if the function is wrong, DGL says so
    found = Frame(num_rows=graph.num_dst_nodes())
    found._initializers, found._default_initializer = frame._initializers, frame._default_initializer
    values = {name: in_numbers(x.x, "a reduce function") for name, x in results.items()}
    if some is None:
        found.update(values)
    else:
        found.update_row(some, values)
    return found
