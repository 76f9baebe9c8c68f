"""How to compute a tensor of one row per edge: kept instead of the tensor until somebody wants its values."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import Parameter

from ...compiler.cache.bounded import kept
from ...ops.message.message_op import MessageOp
from ...ops.message.operators import edge_map
from ...runtime import devices
from ...runtime.type_names import accumulator_of
from ...structures.checks import FLOATING
from ..core.refusal import Refusal
from ..scopes import scope as scopes
from ..scopes.modes import computing, mode, restored
from .ends import End, Host, loops
from .gathers import alias, gather
from .terms import BARE, Term

EDGE, ALL, SCALAR = "edge", "all", "scalar"
"""Places of operands beside the ends: a row per edge, the same for all edges, a number of the user's program."""

PLAIN: set[type] = {Tensor, Parameter}
"""Types of operands: tensors, and what stands for one in the place of it. Beside these, a message of rows that were
mapped has a lazy tensor for operand (``products.py``)."""


def _nobody() -> None:
    """Stands for the tensor of a recipe that has none."""


class Recipe:
    """What is common to all stages of a message.

    Attributes:
        host: the framework.
        shape, dtype: of the tensor, (E, ...).
        operands: every tensor that the values depend on.
        mode: in which the operation was asked for.
        tensor: () -> the tensor of this recipe, lazy or computed; None where nobody holds it any more.
        computed: values that another recipe's computation gave beside its own, until they are asked for.
        merged: whether it has become part of a message that reads rows beside its sum.
        used: whether gradients may come to it from what was made of it.
        base: where this is a view of another recipe, ``(recipe, function)``: the function of its tensor, which shares
            memory with it.
        version: of the tensor when it was computed; None where nobody knows.
        unlooked: how many of those who hold it are known not to look at it.
        way: what a program did to get it (`history.Way`); None where the recipe is all there is.
        natural: stands for its values in the graph of gradients of computing them, where the tensor has another place;
            aliases: of the operands, at which that graph ends.
        hooks: of the tensor, once it was computed, which outlive it.
        scope: in which the tensor may be lazy.
    """

    __slots__ = (
        "aliases",
        "base",
        "computed",
        "dtype",
        "hooks",
        "host",
        "merged",
        "mode",
        "natural",
        "operands",
        "scope",
        "shape",
        "tensor",
        "unlooked",
        "used",
        "version",
        "way",
    )

    def __init__(self, host: Host, shape: torch.Size, dtype: torch.dtype, operands: tuple[Tensor, ...]):
        self.host, self.shape, self.dtype, self.operands = host, shape, dtype, operands
        self.mode = mode()
        self.aliases = self.base = self.computed = self.hooks = self.natural = None
        self.scope = self.version = self.way = None
        self.merged, self.used, self.unlooked = False, False, 0
        self.tensor: Callable[[], Tensor | None] = _nobody

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

    @property
    def read(self) -> list[Tensor]:
        """What is read to compute the tensor."""
        return [*self.sources, *(end.index for end in self.ends() if isinstance(getattr(end, "index", None), Tensor))]

    def settled(self) -> Tensor | None:
        """The tensor if it has been computed and holds what was asked for, or is a view of one that was."""
        tensor = self.tensor()
        if tensor is not None and type(tensor) in PLAIN:
            # a view shows what was written to it, anything else is what it was
            same = self.base is not None or (self.version is not None and tensor._version == self.version)
            return tensor if same else None
        if self.base is not None:
            recipe, view = self.base
            seen = recipe.settled()
            return None if seen is None else view(seen)
        return None

    def pending(self) -> bool:
        """Whether the tensor may still become part of an operator: nobody has looked at it, and the mode that it was
        asked for in is the mode now."""
        return self.mode == mode() and self.settled() is None

    def value(self, reason: str) -> Tensor:
        """The tensor, in the mode in which it was asked for."""
        seen = self.settled()
        if seen is not None:
            return seen
        if self.computed is not None:
            found = self.computed
            if isinstance(found, Tensor):  # else what stands for one in a program that is compiled
                self.computed = None
            return found
        if self.mode == mode():
            return self._compute(reason)
        with restored(self.mode):
            return self._compute(reason)

    def settle(self, reason: str) -> Tensor:
        """The tensor, computed in the place of whoever holds it."""
        held = self.tensor()
        if held is None or type(held) in PLAIN:
            return self.value(reason)
        return held._settle(reason)

    def apart(self, reason: str) -> Tensor:
        """The tensor with a history of its own, which ends at `aliases` of the operands."""
        self.aliases = tuple([alias(computed(x)) for x in self.operands])
        return self.on(self.aliases).value(reason)

    def value_below_autograd(self, reason: str) -> Tensor:
        """The tensor without its history, for code that PyTorch calls below autograd."""
        seen = self.settled()
        if seen is not None:
            return seen.detach()
        with torch.no_grad():
            return self.on(tuple([computed(x).detach() for x in self.operands]))._compute(reason)

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
        """Return a recipe whose result is reshaped to ``shape``; None where the result must be computed first."""
        return None

    def on(self, operands: tuple[Tensor, ...]) -> Recipe:
        """Return this recipe for other operands of the same shapes and types."""
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

    def __init__(self, host, shape, dtype, operands, term: Term, places: tuple, dims: tuple, inner: tuple):
        super().__init__(host, shape, dtype, operands)
        self.term, self.places, self.dims, self.inner = term, places, dims, inner

    def on(self, operands):
        return Pointwise(self.host, self.shape, self.dtype, operands, self.term, self.places, self.dims, self.inner)

    def of(self, term: Term) -> Pointwise:
        """Another expression of the same operands, asked for now."""
        return Pointwise(self.host, self.shape, self.dtype, self.operands, term, self.places, self.dims, self.inner)

    def viewed(self, shape: torch.Size, dims: tuple | None = None) -> Pointwise:
        """Return the message in another shape; ``dims``: of the operands that broadcast to it, if there are any."""
        dims, inner = (self.dims, self.inner) if dims is None else (dims, tuple(shape[1:]))
        return Pointwise(self.host, shape, self.dtype, self.operands, self.term, self.places, dims, inner)

    def promoted(self, dtype: torch.dtype) -> Pointwise:
        """Return the message in another type."""
        return Pointwise(self.host, self.shape, dtype, self.operands, self.term, self.places, self.dims, self.inner)

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

    def arguments(self, of: MessageOp | None = None) -> list[Tensor]:
        """The operands as kernels take them: of one type (numbers keep theirs), and in their shapes.

        In a message of rows whose first operand has the result's type, others keep theirs: to cast them is a pass more.
        of: the operator that they are for. What its gradient reads again, and somebody may write to until then, is
        copied.
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
        if of is not None and torch.is_grad_enabled():
            needed = tuple([x.requires_grad for x in arguments])
            if any(needed):
                for at in of.saved(needed):
                    arguments[at] = scopes.lasting(arguments[at])
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
        op = self.term.message_op(places, None, None)
        out = edge_map(op, graph, reduced, *self.arguments(op))
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
    return Pointwise(host, torch.Size((end.count, *features)), x.dtype, (x,), BARE, (end,), (features,), features)


def bare_rows(host: Host, x: Tensor) -> Pointwise:
    """The recipe of ``x`` at its own rows."""
    features = tuple(x.shape[1:])
    return Pointwise(host, x.shape, x.dtype, (x,), BARE, (EDGE,), (features,), features)


def computed(x: Tensor) -> Tensor:
    """An operand with its values: a product of rows that has waited with the message is made now, once for all."""
    if type(x) in PLAIN:
        return x
    return scopes.keep(x._recipe.settle(""))


@kept
def _number(value: float, sign: float, dtype: torch.dtype) -> Tensor:
    with torch.inference_mode(False):  # it may be saved for a backward pass
        return torch.full((), value, dtype=dtype)


def number(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A number of the user's program, in the type that messages of ``dtype`` are computed in.

    On a GPU it is filled in anew by a launch: one that is kept would have to be waited for on other streams, and what
    is first filled in during the capture of a CUDA graph holds nothing before the graph is replayed.
    """
    value, wide = float(value), accumulator_of(dtype)
    if not abs(value) <= torch.finfo(wide).max:
        value *= math.inf  # as PyTorch takes what is beyond the type
    if devices.arch_of(device):
        return torch.full((), value, dtype=wide, device=device)
    return _number(value, math.copysign(1.0, value), wide)
