"""From a traced program to one that calls our operators: the walk over its graph.

The program is followed with lazy tensors (``..lazy``), by the rules by which eager programs are: a gather of node
features gives one, arithmetic on it gives another, and a reduction or a softmax of it over edges becomes an operator.
Operands are symbols, so what an eager program would run is written into the graph. Nodes stay where they are; those
that nobody wants afterwards go. What we have no operator for is thus the program's own.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.nn import functional

from ...ops.attention.operators import softmax_edges, softmax_segments
from ...ops.message.operators import aggregate
from ...ops.random.draws import torch_draws_so
from ...ops.random.dropout import dropped
from ..core.counters import fallback
from ..core.refusal import Refusal
from ..lazy import OF_SEGMENTS, LazyTensor, gather, of_edges, reduced, refuse_features, softmaxed, value, waiting
from ..lazy.orders import Reduced
from ..lazy.recipes import Pointwise
from ..lazy.stages import Score
from ..lazy.tensor import HANDLERS
from .dropouts import COUNTED
from .edges import IN_DEGREES
from .host import IndexEnd, SegmentsEnd, TracedHost, gathered_of
from .matching import (
    WHOLE,
    Dropout,
    Gather,
    Index,
    Scatter,
    changes_mode,
    dropout_of,
    filled_with,
    gather_of,
    known_tensor,
    memory_of,
    name_of,
    rectified_of,
    scatter_of,
    written_to,
)
from .means import mean_of
from .pointers import Pointers, Segments, segments_of
from .softmaxes import Softmax, softmax_of
from .sweeping import same_unknown_sizes, sweep
from .symbols import KNOWN, Symbol, Tape

REFUSED = "left_to_pytorch"
"""What is known of a node for which there is no operator: the reason."""
_OPERATORS = {
    operator.add: torch.add,
    operator.sub: torch.sub,
    operator.mul: torch.mul,
    operator.truediv: torch.div,
    operator.neg: torch.neg,
    operator.pow: torch.pow,
    operator.getitem: Tensor.__getitem__,
    getattr(torch._C._nn, "leaky_relu", None): functional.leaky_relu,
}
_OF_SHAPE = frozenset(
    ("size", "dim", "numel", "new_zeros", "new_ones", "new_empty", "new_full", "zeros_like", "ones_like", "empty_like")
)


def put_operators(graph: Graph, name: str) -> bool:
    """Put our operators into a traced program, in place; whether there were any to put.

    name: of the framework that their calls are counted for.
    """
    mode = next((x.fake_mode for x in map(known_tensor, graph.nodes) if hasattr(x, "fake_mode")), None)
    if mode is None or not any(find(node) for node in graph.nodes for find in _FINDS):
        return False
    walk = _Walk(graph, name, mode)
    walk.follow()
    return walk.tape.last is not None


_FINDS = (gather_of, scatter_of, segments_of, dropout_of)


class _Walk:
    """One walk over a graph.

    lazy: the lazy tensor that each node amounts to. followed: nodes that amounted to one. gathers: the recipes of those
    that are gathers. places: of nodes in the order of the program. softmaxes, inner: those to come, and the nodes
    within them. degrees: nodes that are the numbers of edges into rows. gone: nodes that were replaced. writes: where
    each memory is written to for the last time.
    """

    def __init__(self, graph: Graph, name: str, mode):
        self.graph, self.tape = graph, Tape(graph, mode)
        self.host = TracedHost(name, self.tape)
        self.lazy: dict[Node, LazyTensor] = {}
        self.followed: set[Node] = set()
        self.gathers: dict[Node, Pointwise] = {}
        self.nodes = list(graph.nodes)
        self.places = {node: at for at, node in enumerate(self.nodes)}
        self.softmaxes = {node: found for node in self.nodes if (found := softmax_of(node)) is not None}
        self.inner = {node for found in self.softmaxes.values() for node in found.inner}
        self.degrees: dict[Node, IndexEnd] = {}
        self.gone: set[Node] = set()
        writes = ((each, node) for node in self.nodes for each in written_to(node))
        self.writes = {memory_of(each): self.places[node] for each, node in writes}

    def follow(self) -> None:
        same = same_unknown_sizes(self.graph, self._lasts)
        for node in self.nodes:
            if node in self.inner or node.op in ("placeholder", "get_attr"):
                continue
            with self.tape.before(node):
                try:
                    self._visit(node)
                except GuardOnDataDependentSymNode:  # sizes that nobody knows before the program runs
                    self.lazy.pop(node, None)
        for node, other in same.items():
            node.replace_all_uses_with(other)
        sweep(self.graph, self.gone | self.followed)
        for node in [each for each in self.graph.nodes if each in self.gathers]:
            self._keep_gradient(node, self.gathers[node])
        sweep(self.graph, self.gone | self.followed)

    def _visit(self, node: Node) -> None:
        if node in self.softmaxes:
            self._softmax(node, self.softmaxes[node])
        elif (found := dropout_of(node)) is not None and torch_draws_so():
            self._drop(node, found)
        elif (scatter := scatter_of(node)) is not None:
            if not self._reduce(node, scatter):
                self._own(node)
        elif (found := segments_of(node)) is not None:
            if not self._reduce_segments(node, found):
                self._want(node)
        elif written_to(node) or changes_mode(node):
            self._own(node)
        elif (found := gather_of(node)) is not None and refuse_features(x := self.tape.symbol(found.x)) is None:
            if found.dim:
                self._gather_along(node, found)
            elif self._lasts(found.x, node) and self._lasts(found.index.node, node):
                x = gathered_of(self.host, found.x, node, self._lasts, self.followed)
                self._is(node, gather(self.host, IndexEnd(found.index, x.shape[0], found.wraps), x))
            if node in self.lazy:
                self.gathers[node] = self.lazy[node]._recipe
        elif not self._handle(node):
            self._want(node)

    def _gather_along(self, node: Node, found: Gather) -> None:
        """A gather along another dimension than the first stays, but where it has a gradient."""
        self._want(node)
        if known_tensor(node).requires_grad and self._lasts(found.x, node) and self._lasts(found.index.node, node):
            x = self._value(found.x).movedim(found.dim, 0)
            if refuse_features(x) is None:
                recipe = gather(self.host, IndexEnd(found.index, x.shape[0], found.wraps), x)._recipe
                rows = recipe.mapped((), recipe.shape)[0]
                self._becomes(node, rows.movedim(0, found.dim).contiguous())

    def _drop(self, node: Node, dropout: Dropout) -> None:
        """Put an operator in the place of a dropout, and of a rectified linear unit before it, if nothing happens
        between the two.
        """
        x, before = dropout.x, rectified_of(dropout.x)
        between = () if before is None else self.nodes[self.places[x] + 1 : self.places[node]]
        rectified = before is not None and not any(written_to(each) or changes_mode(each) for each in between)
        attributes = dropout.p, self.places[node], rectified
        x = self._value(before if rectified else x)
        self._becomes(node, dropped(COUNTED.traced(None), (x,), attributes))

    def _handle(self, node: Node) -> bool:
        """Let lazy operands go through a function as in eager programs. Whether that was possible."""
        if not any(each in self.lazy for each in node.all_input_nodes):
            return True
        name = name_of(node)
        if name in _OF_SHAPE or (name == "expand_as" and node.args[0] not in self.lazy):
            return True
        if not all(each in self.lazy or self._lasts(each, node) for each in node.all_input_nodes):
            return False
        if (mean := mean_of(node, self.degrees)) is not None and self._mean(node, *mean):
            return True
        target = getattr(Tensor, node.target, None) if node.op == "call_method" else node.target
        handler = HANDLERS.get(_OPERATORS.get(target, target)) if node.op.startswith("call_") else None
        if handler is None or not handler.keywords.issuperset(node.kwargs):
            return False
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), self._operand)
        found = handler.function(*args, **kwargs)
        if found is NotImplemented:
            return False
        if isinstance(found, Symbol):
            if found.dtype is not known_tensor(node).dtype:  # autocast
                return False
            self._becomes(node, found)
        else:
            self._is(node, found)
        return True

    def _mean(self, node: Node, sums: Node, rows: IndexEnd) -> bool:
        """Let a node be the mean that sums divided by their number are, if these wait. Whether they do."""
        recipe = self.lazy[sums]._recipe if sums in self.lazy else None
        found = recipe.meant(rows, _unknown) if type(recipe) is Reduced else None
        if found is not None:
            self._is(node, found)
        return found is not None

    def _operand(self, node: Node):
        if node in self.lazy:
            return self.lazy[node]
        return node.meta.get(KNOWN) if known_tensor(node) is None else self.tape.symbol(node)

    def _is(self, node: Node, lazy: LazyTensor) -> None:
        """A node amounts to a lazy tensor, if that is of its shape and type and its features are of known extents."""
        known = known_tensor(node)
        if known is None or known.dtype is not lazy.dtype or list(map(str, known.shape)) != list(map(str, lazy.shape)):
            return
        if all(type(extent) is int for extent in lazy.shape[1:]):
            self.lazy[node] = lazy
            self.followed.add(node)

    def _reduce(self, node: Node, scatter: Scatter) -> bool:
        """Put an operator in the place of a scatter, if there is one."""
        out, src, reduce = scatter.out, scatter.src, scatter.reduce
        fill = filled_with(out) if all(self.places.get(user, -1) >= self.places[node] for user in out.users) else None
        neutral = fill == (1 if reduce == "prod" else 0) and (reduce == "sum" or scatter.replaces is (reduce != "prod"))
        if not neutral and reduce != "sum":
            return False
        rows = IndexEnd(scatter.index, known_tensor(out).shape[scatter.dim])
        alone = self._lasts(node, node) and (not scatter.within or set(out.users) == {node})
        if neutral and alone and not scatter.dim and src in self.lazy:
            waits = waiting(self.lazy[src], rows, reduce, _unknown)
            if waits is not None:
                self._is(node, waits)
                return node in self.lazy
        found = self._sums(rows, src, reduce, scatter.dim)
        if isinstance(found, Refusal):
            return self._refused(node, f"scatter.{reduce}", found)
        if not neutral:
            out = self.tape.symbol(out)
            if scatter.within:
                self._forget([scatter.out])
            found = out.add_(found) if scatter.within else torch.add(out, found)
        elif scatter.within:
            out.replace_all_uses_with(found.node, delete_user_cb=lambda user: user is not node)
        self._becomes(node, found)
        return True

    def _sums(self, rows: IndexEnd, src: Node, reduce: str, dim: int) -> Symbol | Refusal:
        """The reduction of a node over the edges into each row, which are along a dimension."""
        if reduce == "mean":
            sums = self._sums(rows, src, "sum", dim)
            if isinstance(sums, Refusal):
                return sums
            degrees = self._degrees(rows, sums.dtype).clamp(min=1)
            return torch.div(sums, degrees.view(-1, *(1,) * (sums.dim() - 1 - dim)))
        if src in self.lazy and not dim:
            found = reduced(self.lazy[src], rows, reduce)
            if found is not None:
                return found if type(found) is Refusal else found[0]
        x = self._kept(src).movedim(dim, 0) if dim else self._kept(src)
        if reduce == "sum" and x.dim() == 1:
            if filled_with(src) != 1:
                return Refusal("a sum of one number per edge is no faster on a kernel")
            return self._degrees(rows, x.dtype)
        if (refusal := refuse_features(x)) is not None:
            return refusal
        found = aggregate(of_edges(reduce), self.host.graph(rows, None), x)
        self.host.counted(f"scatter.{reduce}")
        return found.movedim(0, dim).contiguous() if dim else found

    def _degrees(self, rows: IndexEnd, dtype: torch.dtype) -> Symbol:
        found = IN_DEGREES(self.host.graph(rows, None), (self.tape.symbol(rows.index.node),), (dtype,))
        self.host.counted("in_degrees")
        self.degrees[found.node] = rows
        return found

    def _reduce_segments(self, node: Node, segments: Segments) -> bool:
        """Put an operator in the place of a reduction of segments, if there is one."""
        given = segments.lengths if segments.pointers is None else segments.pointers.node
        if not self._lasts(given, node):
            return False
        src, reduce, x = segments.src, segments.reduce, self._kept(segments.src)
        if (refusal := refuse_features(x)) is not None:
            return self._refused(node, f"segment.{reduce}", refusal)
        pointers = segments.pointers
        if pointers is None:
            pointers = functional.pad(torch.cumsum(self.tape.symbol(given), 0), (1, 0))
            pointers = Pointers(Index(pointers.node, WHOLE))
        rows = SegmentsEnd(pointers, known_tensor(node).shape[0], known_tensor(src).shape[0])
        found = aggregate(of_edges(reduce, OF_SEGMENTS), self.host.graph(rows, None), x)
        self.host.counted(f"segment.{reduce}")
        if segments.empty not in (0, 1):  # of a maximum, and of a mean that begins with nothing
            index = pointers.index
            symbol = self.tape.symbol(index.node)
            symbol = symbol if index.row == WHOLE else torch.select(symbol, 0, index.row)
            empty = torch.eq(torch.diff(symbol), 0).view(-1, *(1,) * (found.dim() - 1))
            found = torch.where(empty, segments.empty, found)
        self._becomes(node, found)
        return True

    def _softmax(self, node: Node, softmax: Softmax) -> None:
        by_index = type(softmax.index) is Index
        if by_index:
            rows = IndexEnd(softmax.index, softmax.size)
        else:
            rows = SegmentsEnd(softmax.index, softmax.size, known_tensor(softmax.scores).shape[0])
        if softmax.scores in self.lazy and by_index:
            found = softmaxed(self.lazy[softmax.scores], rows, _unknown)
            if isinstance(found, LazyTensor):
                self._is(node, found)
                return
        x = self._kept(softmax.scores)
        if (refusal := refuse_features(x)) is not None:
            self._refused(node, "softmax", refusal)
            return
        found = (softmax_edges if by_index else softmax_segments)(self.host.graph(rows, None), x)
        self.host.counted("softmax")
        self._becomes(node, found)

    def _refused(self, node: Node, operator: str, refusal: Refusal) -> bool:
        """Count what stays the program's, and note the reason beside it. Always False: it is not ours."""
        fallback(self.host.name, operator, refusal.reason)
        node.meta[REFUSED] = refusal.reason
        return False

    def _value(self, node: Node) -> Symbol:
        """A node as a tensor: of a lazy one that more than arithmetic has made, by our operators. What stands at
        more than two ends of an edge, as triplets of atoms do, is no message of a graph, and stays the program's.
        """
        lazy = self.lazy.get(node)
        recipe = None if lazy is None else lazy._recipe
        if recipe is None or type(recipe) is Pointwise or (type(recipe) is Score and len(recipe.ends()) > 2):
            return self.tape.symbol(node)
        return self.tape.written_for(node, lambda: value(lazy, ""))

    def _lasts(self, read: Node, at: Node) -> bool:
        """Whether nobody writes to a tensor any more, so that an operator may keep it for its gradient."""
        return self.writes.get(memory_of(read), -1) <= self.places[at]

    def _kept(self, node: Node) -> Symbol:
        """`_value`, of which a copy is kept where somebody writes to it later."""
        x = self._value(node)
        return x if self._lasts(node, node) else x.clone()

    def _want(self, node: Node) -> None:
        """A node that is the program's own takes what lazy tensors it is given as tensors."""
        for each in node.all_input_nodes:
            if each in self.lazy and (found := self._value(each)).node is not each:
                node.replace_input_with(each, found.node)

    def _becomes(self, node: Node, found: Symbol) -> None:
        """A symbol takes the place of a node; a copy of it where somebody writes to that later: an operator may keep
        what it gave.
        """
        if not self._lasts(node, node):
            found = found.clone()
        node.replace_all_uses_with(found.node)
        self.places[found.node] = self.places[node]
        self.lazy.pop(node, None)
        self.gone.add(node)

    def _own(self, node: Node) -> None:
        """A node stays that writes to tensors, or changes what later ones record."""
        self._want(node)
        if changes_mode(node):
            self.lazy.clear()
            self.softmaxes.clear()
            self.inner.clear()
        self._forget(written_to(node))

    def _forget(self, written: list[Node]) -> None:
        """Something is written to tensors: what was lazily computed of them, or is a part of them, stays the
        program's.
        """
        memories = {memory_of(each) for each in written} - {None}
        for node, lazy in list(self.lazy.items()):
            recipe = lazy._recipe
            read = [x.node for x in recipe.sources if isinstance(x, Symbol)]
            read += [end.index.node for end in recipe.ends()]
            if memories.intersection(map(memory_of, (node, *read))):
                del self.lazy[node]
        for node, found in list(self.softmaxes.items()):
            if memories.intersection(map(memory_of, (found.scores, found.index.node, *found.inner))):
                del self.softmaxes[node]
                self.inner.difference_update(found.inner)

    def _keep_gradient(self, node: Node, recipe: Pointwise) -> None:
        """A gather that stays, and has a gradient, becomes an operator: that gradient is then no scatter."""
        if not known_tensor(node).requires_grad:
            return
        with self.tape.before(node):
            self._becomes(node, recipe.mapped((), recipe.shape)[0])


def _unknown(x):
    raise NotImplementedError("what a compiled program reduces is written out, and no function is called for it")
