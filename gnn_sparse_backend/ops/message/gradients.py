"""How the gradient of an operand comes from another aggregation or edge map, and which of its feature dimensions are
summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import Tensor

from .calls import result_features
from .message_op import MessageOp


@dataclass(slots=True)
class GradientPlan:
    """How one gradient is computed, from the shapes of the operands alone.

    reduced: feature dimensions that an edge map sums itself. over: dimensions to sum afterwards, along which the
    operand was broadcast. alike: number of like terms along dimensions that none of the operands has. padded: the
    operand's feature shape with leading ones. plain: none of this is needed. passes: the gradient is the cotangent.
    """

    form: MessageOp
    transposed: bool
    sources: tuple
    reduced: tuple[bool, ...]
    over: tuple[int, ...]
    alike: int
    padded: tuple[int, ...]
    plain: bool
    passes: bool


NO_GRADIENT = GradientPlan(None, False, (), (), (), 1, (), True, False)


def gradient_plan(
    form: MessageOp, number: int, shapes: tuple[tuple[int, ...], ...], cotangent: tuple[int, ...]
) -> GradientPlan:
    """The plan of operand ``number``'s gradient, from the feature shapes of all operands and of the cotangent."""
    gradient = form.gradient(number)
    if gradient is None:
        return NO_GRADIENT
    dims = result_features(form, shapes)
    place, own = form.places[number], shapes[number]
    padded = (1,) * (len(dims) - len(own)) + own
    others = {"cotangent": cotangent, "chosen": dims, "result": dims, "others": dims, "scale": (1,), "number": ()}
    have = result_features(gradient.form, [shapes[s] if type(s) is int else others[s] for s in gradient.sources])
    if form.sums:  # what flows back has the last extent of the operand, whatever that of the message is
        dims = (*dims[:-1], own[-1] if own else 1)
    aligned = (1,) * (len(dims) - len(have)) + have
    summed = tuple(mine == 1 and found != 1 for mine, found in zip(padded, aligned))
    alike = prod(e for e, mine, found in zip(dims, padded, aligned) if mine == 1 and found == 1)
    over, reduced = tuple(at for at, gone in enumerate(summed, 1) if gone), ()
    if place == "edge" and over:
        over, reduced = (), summed[len(dims) - len(have) :]
    plain = not over and not reduced and alike == 1 and have == own and place != "all"
    passes = plain and place == "edge" and gradient.sources == ("cotangent",) and str(gradient.form.message) == "x0"
    passes = passes and gradient.form.places == ("edge",)
    return GradientPlan(
        gradient.form, gradient.transposed, gradient.sources, reduced, over, alike, padded, plain, passes
    )


def fit_gradient(plan: GradientPlan, out: Tensor, place: str, shape) -> Tensor:
    """What the plan's form gave, summed over the feature dimensions that the operand of this shape was broadcast
    along.
    """
    if plan.plain:
        return out
    if place == "all":
        out = out.sum(0, keepdim=True)
    if not plan.over and plan.alike == 1 and prod(out.shape) == prod(shape):
        return out.view(shape)
    padded = plan.padded
    out = out.reshape(out.shape[0], *(1,) * (len(padded) + 1 - out.dim()), *out.shape[1:])
    if plan.over:
        out = out.sum(plan.over, keepdim=True)
    if plan.alike != 1:
        out = out * plan.alike
    return out.expand(out.shape[0], *padded).reshape(shape)
