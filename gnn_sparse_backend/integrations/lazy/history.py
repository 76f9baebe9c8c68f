"""What autograd knows of lazy tensors: whoever looks at one finds its gradient, as where it is computed at once.

A lazy tensor has a node in the graph of gradients, and what is made of several of them by one operator has a short way
back, to what the first of them was made of. Nobody can look at a tensor that nobody holds, so as a rule gradients go
that way, in one pass. Where somebody holds one that was computed, and may ask for its gradient, or has left a hook on
it, they go the long way (``Way``): what lies behind that tensor is done again with its values as they are, so that its
gradient comes to it, and goes on from there.

Whoever computes a lazy tensor gets an ordinary one in the same place of the graph (``at_edge_of``).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks

from ..scopes import scope as scopes
from ..scopes.modes import COMPUTING, computing, transformed
from .gathers import alias, gradient_of_gather
from .recipes import PLAIN, Pointwise, Recipe, computed

_BELOW = "the gradient of a message that was used below autograd"
_LOOK = "the gradient of a message that somebody looks at"


class Way:
    """The long way back through ``function(*arguments)``, a step of a program.

    Attributes:
        arguments: a recipe in the place of each lazy tensor.
        held: the recipes of the lazy tensors on the way that somebody held when it was made.
        leaves: the tensors that the way ends at, each once: what the steps on it were given beside lazy tensors.
        values: of the leaves, to be read from there.
        lazily: ``(recipe) -> tensor``, the lazy tensor of a recipe.
    """

    __slots__ = ("arguments", "function", "held", "lazily", "leaves", "values")

    def __init__(self, function: Callable, arguments: tuple):
        self.function = function
        self.lazily = next(x.of for x in arguments if _is_lazy(x))
        self.arguments = tuple([x if type(x) in PLAIN else getattr(x, "_recipe", x) for x in arguments])
        leaves, passed = {}, {}
        for x in self.arguments:
            if isinstance(x, Recipe):
                leaves.update((id(leaf), leaf) for leaf in (x.operands if x.way is None else x.way.leaves))
                passed.update((each, None) for each in (x, *(() if x.way is None else x.way.held)))
            elif isinstance(x, Tensor):
                leaves[id(x)] = x
        self.values = self.leaves = tuple(leaves.values())
        self.held = () if COMPUTING.on else tuple(filter(_is_held, passed))

    def now(self) -> Way:
        """The way with those alone that somebody holds now."""
        way = copy(self)
        way.held = tuple(filter(_is_held, self.held))
        return way

    @property
    def edges(self) -> tuple[Tensor, ...]:
        """What stands for the end of the way, and for those that are held, among the inputs of a node."""
        return *self.leaves, *(each.tensor() for each in self.held)

    def looked_at(self) -> set[Recipe]:
        """Recipes on the way that somebody may ask for the gradient of."""
        return {each for each in self.held if _is_looked_at(each)}

    def pin(self, lasting: Callable[[Tensor], Tensor]) -> None:
        """Keep what the way reads, if somebody may still look: the scope ends, and it may be written to from here.

        lasting: the tensor, or a copy of one that somebody may write to.
        """
        if any(type(each.tensor()) in PLAIN or each.hooks for each in self.held):
            self.values = tuple([_in_place(x, lasting(x)) for x in self.leaves])

    def gradients(self, looked_at: set[Recipe], grad: Tensor) -> list[Tensor | None]:
        """The gradients of ``edges``, of those that are held only for those that are looked at."""
        again, seen = torch.is_grad_enabled(), [each for each in self.held if each in looked_at]
        with torch.enable_grad(), computing():
            ends = [*self.values, *map(_value_of, seen)]
            wanted = [x.requires_grad for x in ends]

            def through(*tensors: Tensor) -> Tensor:
                given = dict(zip(map(id, self.leaves), tensors))
                out = self._again(given, dict(zip(seen, tensors[len(self.leaves) :])))
                return out if type(out) in PLAIN else out._settle(_LOOK)

            found = _gradients_at(through, ends, wanted, grad, again)
        of_seen = dict(zip(seen, found[len(self.leaves) :]))
        return [*found[: len(self.leaves)], *(of_seen.get(each) for each in self.held)]

    def _again(self, leaves: dict[int, Tensor], known: dict[Recipe, Tensor]) -> Tensor:
        """The step of other leaves. known: the tensors that recipes stand for, to which those found here are added."""

        def of(x):
            if not isinstance(x, Recipe):
                return leaves.get(id(x), x)
            if x not in known:
                if x.way is None:
                    recipe = x.on(tuple([leaves.get(id(each), each) for each in x.operands]))
                    known[x] = recipe.value(_LOOK) if transformed() else self.lazily(recipe)
                else:
                    known[x] = x.way._again(leaves, known)
            return known[x]

        return self.function(*map(of, self.arguments))


class _Node(Function):
    """A lazy tensor. Its inputs are the operands of its recipe, and then the edges of its way."""

    @staticmethod
    def forward(ctx, make: Callable[[Recipe], Tensor], recipe: Recipe, *tensors):
        ctx.set_materialize_grads(False)
        ctx.recipe = recipe
        return make(recipe)

    @staticmethod
    def backward(ctx, grad):
        recipe, needed = ctx.recipe, ctx.needs_input_grad[2:]
        count = len(recipe.operands)
        if grad is None:
            return (None,) * (2 + len(needed))
        if recipe.way is not None and (looked_at := recipe.way.looked_at()):
            return *(None,) * (2 + count), *recipe.way.gradients(looked_at, grad)
        return None, None, *_short_way(recipe, needed[:count], grad), *(None,) * (len(needed) - count)


class _Joined(Function):
    """What an operator gave. Its inputs are that, and then the edges of the way through what it stands for."""

    @staticmethod
    def forward(ctx, way: Way, out, *tensors):
        ctx.set_materialize_grads(False)
        ctx.way = way
        return out.detach()

    @staticmethod
    def backward(ctx, grad):
        if grad is not None and (looked_at := ctx.way.looked_at()):
            return None, None, *ctx.way.gradients(looked_at, grad)
        return None, grad, *(None,) * (len(ctx.needs_input_grad) - 2)


# Function.apply without its handling of torch.func transforms, under which nothing is lazy: 2 us less.
_node, _joined = super(Function, _Node).apply, super(Function, _Joined).apply


def recorded(make: Callable[[Recipe], Tensor], recipe: Recipe, function: Callable | None, arguments: tuple) -> Tensor:
    """The lazy tensor that ``make`` gives of a recipe, with a history.

    function: ``(*arguments) -> tensor``, the step that it stands for; None where the recipe is all there is.
    """
    if function is None or not any(map(_is_lazy, arguments)):  # what was lazy may have been computed for the step
        return _node(make, recipe, *recipe.operands)
    way = recipe.way = Way(function, arguments)
    for each in way.held:
        each.used = True
    return _node(make, recipe, *recipe.operands, *way.edges)


def is_recorded(out: Tensor) -> bool:
    """Whether anybody may ask for gradients behind a tensor that was computed now, but those that autograd knows."""
    if not out.requires_grad:
        return False
    scope = scopes.current()
    return scope is None or not scope.plain


def joined(out: Tensor, function: Callable, *arguments) -> Tensor:
    """What an operator computed of lazy tensors, with the long way where somebody may look at one.

    function: ``(*arguments) -> tensor`` that the operator stands for, of tensors that may be lazy or not.
    """
    if not is_recorded(out) or not any(map(_is_lazy, arguments)):
        return out
    return _with_way(out, Way(function, arguments))


def computed_on(out: Tensor, way: Way | None) -> Tensor:
    """What was computed of a lazy tensor, with the long way that the tensor had."""
    return out if way is None or not out.requires_grad else _with_way(out, way.now())


def _with_way(out: Tensor, way: Way) -> Tensor:
    if not way.held:
        return out
    for each in way.held:
        each.used = True
    scopes.note(way)
    return _joined(way, out, *way.edges)


def at_edge_of(lazy: Tensor, value: Tensor) -> Tensor:
    """The values in a tensor that has the place of a lazy one in the graph of gradients."""
    tensor, recipe = at_place_of(lazy, value), lazy._recipe
    if recipe.way is not None:
        scopes.note(recipe.way)
    return tensor


def at_place_of(x: Tensor, value: Tensor) -> Tensor:
    """The values in a tensor that has the place of another in the graph of gradients.

    What a node has saved comes back in the place that it had there, with the values that hooks say.
    """
    with torch.enable_grad(), saved_tensors_hooks(lambda _: value, lambda _: value):
        kept = _kept(x)  # held until it is read: with PyTorch 2.4 a node forgets what it saved when its result is gone
        (tensor,) = kept.grad_fn.saved_tensors
    return tensor


def place_of(x: Tensor) -> Tensor:
    """A tensor without memory of its own that has the place of another in the graph of gradients."""
    return at_place_of(x, x.new_empty(1).expand(x.shape))


def hooks_of(tensor: Tensor) -> dict:
    """The hooks that a tensor has, and will have, which outlive it."""
    if tensor._backward_hooks is None:
        tensor._backward_hooks = OrderedDict()
        if tensor.grad_fn is not None:
            tensor.grad_fn._register_hook_dict(tensor)
    return tensor._backward_hooks


class _Kept(Function):
    @staticmethod
    def forward(ctx, lazy):
        ctx.save_for_backward(lazy)
        return torch.empty(0)

    @staticmethod
    def backward(ctx, grad):
        raise AssertionError("nobody differentiates this")


_kept = super(Function, _Kept).apply


def _is_lazy(x) -> bool:
    return isinstance(x, Tensor) and type(x) not in PLAIN


def _in_place(x: Tensor, kept: Tensor) -> Tensor:
    """What was kept of a tensor, in its place in the graph of gradients."""
    return x if kept is x else at_place_of(x, kept.detach()) if x.requires_grad else kept


def _is_held(recipe: Recipe) -> bool:
    """Whether somebody holds the tensor, beside those who are known not to look at it."""
    tensor = recipe.tensor()
    return tensor is not None and sys.getrefcount(tensor) > 2 + recipe.unlooked


def _is_looked_at(recipe: Recipe) -> bool:
    """Whether somebody may ask for the gradient of the tensor: it was computed, or still may be."""
    tensor = recipe.tensor()
    if tensor is None:
        return bool(recipe.hooks)
    return type(tensor) in PLAIN or (recipe.scope is not None and not recipe.scope.ended)


def _value_of(recipe: Recipe) -> Tensor:
    """The tensor of a recipe that is looked at, as it was."""
    tensor = recipe.settled()
    if tensor is None:
        tensor = recipe.value_below_autograd(_LOOK)
        held = recipe.tensor()
        # in its place, should that be differentiated in turn
        return tensor.requires_grad_() if held is None or not held.requires_grad else at_place_of(held, tensor)
    return tensor


def _short_way(recipe: Recipe, needed: Sequence[bool], grad: Tensor) -> list[Tensor | None]:
    """The gradients of the operands by operators of the whole recipe."""
    if type(recipe) is Pointwise and recipe.bare and recipe.plain:
        return [gradient_of_gather(recipe.host, recipe.places[0], grad).view(recipe.operands[0].shape)]
    again = torch.is_grad_enabled()
    if recipe.natural is not None:
        return _gradients_of(recipe.natural, recipe.aliases, needed, grad, create_graph=again, retain_graph=True)
    with torch.enable_grad():
        operands = list(map(computed, recipe.operands))
        return _gradients_at(lambda *x: recipe.on(x).value(_BELOW), operands, needed, grad, again)


def _gradients_at(function, tensors: list[Tensor], needed, grad: Tensor, again: bool) -> list[Tensor | None]:
    """The gradients of a function of tensors, at these. again: as part of a program that is differentiated itself."""
    if not torch._C._are_functorch_transforms_active():
        # each for itself: one may have been made of another
        tensors = [alias(x) if again else x.detach().requires_grad_(want) for x, want in zip(tensors, needed)]
        return _gradients_of(function(*tensors), tensors, needed, grad, create_graph=again)
    wanted = [x for x, want in zip(tensors, needed) if want]

    def of_wanted(*given: Tensor) -> Tensor:
        left = iter(given)
        return function(*(next(left) if want else x for x, want in zip(tensors, needed)))

    found = iter(torch.func.vjp(of_wanted, *wanted)[1](grad))
    return [next(found) if want else None for want in needed]


def _gradients_of(value: Tensor, tensors: Sequence[Tensor], needed, grad: Tensor, **how) -> list[Tensor | None]:
    wanted = [x for x, one in zip(tensors, needed) if one]
    if not wanted or not value.requires_grad:
        return [None] * len(needed)
    found = iter(torch.autograd.grad(value, wanted, grad, allow_unused=True, **how))
    return [next(found) if one else None for one in needed]
