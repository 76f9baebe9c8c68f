"""How to compute a tensor of one row per edge: kept instead of the tensor until somebody wants its values."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import Parameter

from ...compiler.cache.bounded import kept
from ...ops.message.message_op import message_op
from ...ops.message.operators import aggregate, edge_map
from ...runtime import devices
from ...structures.checks import FLOATING
from ..core.refusal import Refusal
from .ends import End, Host, loops
from .modes import computing, mode, restored
from .terms import BARE, Term

EDGE, ALL, SCALAR = "edge", "all", "scalar"
"""Places of operands beside the ends: a row per edge, the same for all edges, a number of the user's program."""

PLAIN: set[type] = {Tensor, Parameter}
"""Types of operands: tensors, and what stands for one in the place of it. Beside these, a message of rows that were
mapped has a lazy tensor for operand (``products.py``)."""

_SUM_OF_EDGES = message_op("x0", ("edge",), "sum")


class Recipe:
    """What is common to all stages of a message.

    Attributes:
        host: the framework.
        shape, dtype: of the tensor, (E, ...).
        operands: every tensor that the values depend on.
        versions: of the operands, when they came in.
        mode: in which the operation was asked for.
        computed: the tensor, once somebody has wanted it.
        used: whether it is a part of other recipes, or was reduced.
        base: where this is a view of another recipe, ``(recipe, function)``: the function of its tensor, which shares
            memory with it.
    """

    __slots__ = ("base", "computed", "dtype", "host", "mode", "operands", "shape", "used", "versions")

    def __init__(
        self, host: Host, shape: torch.Size, dtype: torch.dtype, operands: tuple[Tensor, ...], versions: tuple
    ):
        self.host, self.shape, self.dtype, self.operands, self.versions = host, shape, dtype, operands, versions
        self.mode = mode()
        self.computed = self.base = None
        self.used = False

    @property
    def device(self) -> torch.device:
        """Where the operands are."""
        return self.operands[0].device

    @property
    def of_edges(self) -> bool:
        """Whether there is a row for each edge of a graph: an operator may take it in."""
        return self.host.of_edges

    @property
    def sources(self) -> list[Tensor]:
        """The operands, and in the place of a product that waits those of it."""
        return [y for x in self.operands for y in ((x,) if type(x) in PLAIN else x._recipe.operands)]

    def settled(self) -> Tensor | None:
        """The tensor if it has been computed, or that which this is a view of."""
        if self.computed is None and self.base is not None and self.base[0].settled() is not None:
            self.value("")
        return self.computed

    def pending(self) -> bool:
        """Whether the tensor may still become part of an operator: nobody has looked at it, and the mode that it was
        asked for in is the mode now."""
        return self.settled() is None and self.mode == mode()

    def value(self, reason: str) -> Tensor:
        """The tensor, computed once, in the mode in which it was asked for."""
        if self.computed is None:
            if self.base is None:
                self.check_unmodified()
            if self.mode == mode():
                self.computed = self._compute(reason)
            else:
                with restored(self.mode):
                    self.computed = self._compute(reason)
        return self.computed

    def value_below_autograd(self, reason: str) -> Tensor:
        """The tensor without its history, for code that PyTorch calls below autograd."""
        if self.computed is not None:
            return self.computed.detach()
        self.check_unmodified()
        with torch.no_grad():
            return self.on(tuple(x.detach() for x in self.operands))._compute(reason)

    def check_unmodified(self) -> None:
        """Raise if what the message is made of was written to since: its values at the time of the gather are lost."""
        if self.versions != tuple([version(x) for x in self.operands]) or any(end.modified() for end in self.ends()):
            raise RuntimeError(
                "gnn_sparse_backend computes messages between nodes only when they are used, but the node features, "
                "the edge features or the edge index were modified in place in between; modify a clone instead, or run "
                f"this layer with the backend off: gnn_sparse_backend.disable({self.host.name!r})"
            )

    def _compute(self, reason: str) -> Tensor:
        if self.base is not None:
            recipe, view = self.base
            return view(recipe.value(reason))
        with computing():
            return self.host.compute(self, reason)

    def ends(self) -> tuple[End, ...]:
        """The distinct ends that operands stand at."""
        raise NotImplementedError

    def viewed(self, shape: torch.Size) -> Recipe | None:
        """The same numbers with their features in other dimensions; None where they must be computed first."""
        return None

    def on(self, operands: tuple[Tensor, ...]) -> Recipe:
        """The same recipe for other operands of the same shapes and types."""
        raise NotImplementedError

    def run(self) -> tuple[Tensor, str] | Refusal:
        """The tensor by our kernels, and what it is counted as."""
        raise NotImplementedError

    def reference(self) -> Tensor:
        """The tensor by the framework's own operations, as the user's program has them."""
        raise NotImplementedError


class Pointwise(Recipe):
    """A message: a scalar expression, feature by feature, of operands at ends, at edges, or the same for all.

    Attributes:
        term: the expression.
        places: for each operand an ``End``, ``EDGE``, ``ALL`` or ``SCALAR``.
        dims: for each operand the shape in which its features are read; they broadcast as in NumPy.
        inner: the broadcast features. ``shape`` has as many features, maybe in other dimensions.
    """

    __slots__ = ("dims", "inner", "places", "term")

    def __init__(self, host, shape, dtype, operands, versions, term: Term, places: tuple, dims: tuple, inner: tuple):
        super().__init__(host, shape, dtype, operands, versions)
        self.term, self.places, self.dims, self.inner = term, places, dims, inner

    def on(self, operands):
        versions = tuple(map(version, operands))
        return Pointwise(
            self.host, self.shape, self.dtype, operands, versions, self.term, self.places, self.dims, self.inner
        )

    def of(self, term: Term) -> Pointwise:
        """Another expression of the same operands, asked for now."""
        return Pointwise(
            self.host, self.shape, self.dtype, self.operands, self.versions, term, self.places, self.dims, self.inner
        )

    def viewed(self, shape: torch.Size, dims: tuple | None = None) -> Pointwise:
        """The same message in another shape; ``dims`` of the operands that broadcast to it, if there are any."""
        dims, inner = (self.dims, self.inner) if dims is None else (dims, tuple(shape[1:]))
        return Pointwise(
            self.host, shape, self.dtype, self.operands, self.versions, self.term, self.places, dims, inner
        )

    def promoted(self, dtype: torch.dtype) -> Pointwise:
        """The same message in another type."""
        return Pointwise(
            self.host, self.shape, dtype, self.operands, self.versions, self.term, self.places, self.dims, self.inner
        )

    @property
    def plain(self) -> bool:
        """Whether ``shape`` is that of the broadcast features."""
        return self.shape[1:] == self.inner

    @property
    def bare(self) -> bool:
        """Whether this is a gather alone."""
        return self.term is BARE and type(self.places[0]) is not str

    def ends(self):
        found: list[End] = []
        for place in self.places:
            if type(place) is not str and not any(place.key == end.key for end in found):
                found.append(place)
        return tuple(found)

    def arguments(self) -> list[Tensor]:
        """The operands as kernels take them: of one type (numbers keep theirs), and in their shapes.

        Of rows, where the first has the type of the result, others keep theirs: a pass that casts them costs as much.
        """
        dtype, arguments = self.dtype, []
        as_they_are = FLOATING if not self.of_edges and self.operands[0].dtype is dtype else ()
        for x, place, dims in zip(map(computed, self.operands), self.places, self.dims):
            if place is SCALAR:
                arguments.append(x)
                continue
            if x.dtype is not dtype and x.dtype not in as_they_are:
                x = x.to(dtype)
            if place is ALL:
                arguments.append(x if x.shape == dims else x.reshape(dims))
            else:
                arguments.append(x if x.shape[1:] == dims else x.reshape(x.shape[0], *dims))
        return arguments

    def at(self, rows: End | None) -> tuple[tuple[str, ...], End | None] | None:
        """The places of the operands, and the end that is not ``rows``; None if there is more than one of those."""
        columns, places = None, []
        for place in self.places:
            if type(place) is str:
                places.append(ALL if place is SCALAR else place)
            elif rows is not None and place.key == rows.key:
                places.append("row")
            elif columns is None or columns.key == place.key:
                columns = place
                places.append("column")
            else:
                return None
        return tuple(places), columns

    def run(self):
        if self.bare:
            value = gather(self.host, self.places[0], computed(self.operands[0]))
            return value if value.shape == self.shape else value.view(self.shape), self.host.counted("gather")
        return self.mapped((), self.shape)

    def mapped(self, reduced: tuple[bool, ...], shape: torch.Size) -> tuple[Tensor, str] | Refusal:
        """The message of every edge, summed over the marked dimensions of ``inner``, as ``run`` gives it."""
        ends = self.ends()
        if not ends:
            found = loops(self.shape[0], self.device)
        else:
            found = self.host.graph(ends[0], None) if len(ends) == 1 else self.host.either(*ends)
        if type(found) is Refusal:
            return found
        graph, first = found if len(ends) == 2 else (found, True)
        rows = None if not ends else ends[0] if first else ends[1]
        places, _ = self.at(rows)
        out = edge_map(self.term.message_op(places, None, None), graph, reduced, *self.arguments())
        return out.view(shape), self.host.counted("edge_map")

    def reference(self):
        count, rank, values = self.shape[0], len(self.inner), []
        for x, place, dims in zip(map(computed, self.operands), self.places, self.dims):
            if type(place) is not str:
                x = place.gather(x)
            if place is SCALAR:
                values.append(x)
            elif place is ALL:
                values.append(x if x.shape == dims else x.reshape(dims))
            else:
                wanted = (count, *(1,) * (rank - len(dims)), *dims)
                values.append(x if x.shape == wanted else x.view(wanted))
        value = self.term.compute(values)
        if value.dtype is not self.dtype:
            value = value.to(self.dtype)
        return value if value.shape == self.shape else value.view(self.shape)


def gathered(host: Host, end: End, x: Tensor) -> Pointwise:
    """The recipe of ``x`` (end.size, ...) at an end of the edges: (end.count, ...)."""
    features = x.shape[1:]
    return Pointwise(
        host, torch.Size((end.count, *features)), x.dtype, (x,), (version(x),), BARE, (end,), (features,), features
    )


def bare_rows(host: Host, x: Tensor) -> Pointwise:
    """The recipe of ``x`` at its own rows."""
    features = tuple(x.shape[1:])
    return Pointwise(host, x.shape, x.dtype, (x,), (version(x),), BARE, (EDGE,), (features,), features)


def gather(host: Host, end: End, x: Tensor, dim: int = 0) -> Tensor:
    """The framework's gather, of nodes that are dimension ``dim``, whose gradient is a sum on our kernel."""
    if torch.is_grad_enabled() and x.requires_grad:
        return _Gather.apply(x, host, end, dim)
    return end.gather(x)


class _Gather(Function):
    @staticmethod
    def forward(ctx, x, host, end, dim):
        ctx.host, ctx.end, ctx.dim = host, end, dim
        return end.gather(x)

    @staticmethod
    def backward(ctx, grad):
        dim = ctx.dim
        graph = ctx.host.graph(ctx.end, None)
        if type(graph) is Refusal:
            raise RuntimeError(f"the gradient of a gather: {graph.reason}, which was written to since")
        if dim == 0:
            return aggregate(_SUM_OF_EDGES, graph, grad), None, None, None
        return aggregate(_SUM_OF_EDGES, graph, grad.movedim(dim, 0)).movedim(0, dim), None, None, None


def computed(x: Tensor) -> Tensor:
    """An operand with its values: a product of rows that has waited with the message is made now."""
    return x if type(x) in PLAIN else x._recipe.value("")


def version(tensor: Tensor) -> int | None:
    """The version counter, where there is one."""
    waiting = None if type(tensor) in PLAIN else getattr(tensor, "_recipe", None)
    if waiting is not None:  # as of the tensor that it will be
        return None if waiting.mode[1] else 0
    return None if tensor.is_inference() else tensor._version


@kept
def _number(value: float, sign: float, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # it may be saved for a backward pass
        return torch.full((), value, dtype=dtype)


def number(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number of the user's program, in the type that messages of ``dtype`` are computed in.

    On a GPU it is filled in anew by a launch: one that is kept would have to be waited for on other streams, and what
    is first filled in during the capture of a CUDA graph holds nothing before the graph is replayed.
    """
    value, wide = float(value), torch.float64 if dtype is torch.float64 else torch.float32
    if not abs(value) <= torch.finfo(wide).max:
        value *= math.inf  # as PyTorch takes what is beyond the type
    if devices.arch_of(device):
        return torch.full((), value, dtype=wide, device=device)
    return _number(value, math.copysign(1.0, value), wide)
