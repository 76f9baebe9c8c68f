"""y = x where a mask is 1, scaled, else x * 0: what dropout does behind its draws, in one pass.

    y[i] = x[i] * (mask[i] ? scale : 0)

An infinity that is dropped is NaN, and a negative number -0, as in the product with a tensor of scales and zeros.

With a rectified linear unit before it, of which the mask knows where it gave 0 (from ``DEAD`` on); what it gave may be
at hand, and is then x:

    y[i] = max(x[i], 0) * (mask[i] ? scale : 0), mask[i] += x[i] <= 0 ? DEAD : 0      forward
    y[i] = mask[i] >= DEAD ? 0 : x[i] * (mask[i] ? scale : 0)                         on the way back
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import constant_argument
from ...compiler.language.builder import BufferHandle, ProgramBuilder
from ...compiler.language.expr import Expr, as_expr, cast, differ, select
from ...compiler.language.program import Program
from ...compiler.language.types import ACCUMULATOR
from ...compiler.schedules.cpu import cpu_schedule
from ...runtime.layout import in_memory
from ...runtime.type_names import accumulator_of, type_name
from ..core.executable import Launch, compiled, in_threads
from ..core.operands import check_dense
from ..core.operator import Operator

LANES = 32
"""Elements that are multiplied at once."""
DEAD = 2
AFTER, OF_RESULT, BEHIND = "after", "of its result", "behind"
"""What a product with a mask goes with: a rectified linear unit before it, its result, and its gradient."""


def masked_product(dtype: str, unit: str = "") -> Program:
    """The program. Parameters: (blocks, rest, X, Mask, Scale, Y, X_rest, Mask_rest, Y_rest): blocks of elements,
    (blocks, `LANES`), and the elements behind them, (rest,); masks of uint8; Scale of (1,). The product is rounded
    once.

    unit: ``AFTER``, ``OF_RESULT`` or ``BEHIND``, where a rectified linear unit is meant, "" otherwise.
    """
    p = ProgramBuilder("masked_product")
    wide = ACCUMULATOR[dtype]
    blocks, rest = p.sizes("blocks", "rest")
    B, K, R, One = (p.dense_fixed(*axis) for axis in (("B", blocks), ("K", LANES), ("R", rest), ("One", 1)))
    whole = [p.buffer(name, (B, K), kind) for name, kind in (("X", dtype), ("Mask", "uint8"))]
    Scale = p.buffer("Scale", (One,), wide)
    whole.append(p.buffer("Y", (B, K), dtype))
    behind = [p.buffer(f"{name}_rest", (R,), kind) for name, kind in (("X", dtype), ("Mask", "uint8"), ("Y", dtype))]

    def multiply(buffers: list[BufferHandle], *at: Expr) -> None:
        X, Mask, Y = buffers
        x, zero = cast(wide, X[at]), as_expr(0.0, wide)
        factor = select(differ(Mask[at], 0), Scale[0], zero)
        if unit == BEHIND:
            Y[at] = cast(dtype, select(Mask[at] >= DEAD, zero, x * factor))
            return
        Y[at] = cast(dtype, (select(x <= zero, zero, x) if unit == AFTER else x) * factor)
        if unit:
            Mask[at] = Mask[at] + select(x <= zero, as_expr(DEAD), as_expr(0))

    with p.iterate("whole", (B,), "S", ("b",)) as (b,), p.iterate("lanes", (K,), "S", ("k",)) as (k,):
        multiply(whole, b, k)
    with p.iterate("remainder", (R,), "S", ("r",)) as (r,):
        multiply(behind, r)
    return p.finish()


@kept
def _launch(dtype: torch.dtype, unit: str) -> Launch:
    return compiled(masked_product(type_name(dtype), unit), cpu_schedule(), in_threads(True))


@kept
def _scale(scale: float, dtype: torch.dtype):
    return constant_argument(torch.tensor([scale], dtype=accumulator_of(dtype)))


def _check(structure: None, operands, attributes) -> list[Tensor]:
    x, mask = operands
    check_dense("masked", "x", x)
    if x.device.type != "cpu" or mask.dtype is not torch.uint8 or mask.device != x.device or mask.shape != x.shape:
        raise ValueError(
            f"masked: x and mask must be on the CPU, and mask uint8 of x's shape {tuple(x.shape)}, got x on {x.device} "
            f"and {mask.dtype} of shape {tuple(mask.shape)} on {mask.device}"
        )
    if torch.empty_like(mask).stride() != mask.stride():
        raise ValueError(f"masked: mask must have no gaps, got strides {mask.stride()}; use mask.contiguous()")
    return [x, mask]


def rectified(x: Tensor, mask: Tensor, scale: float, unit: str = AFTER) -> Tensor:
    """``masked`` of max(x, 0), or of x that is that (``OF_RESULT``), which marks the mask in place where x is not above
    0. No autograd.
    """
    return _product(x, mask, scale, unit)


def _run(structure: None, operands, attributes) -> Tensor:
    scale, dead = attributes
    return _product(*operands, scale, BEHIND if dead else "")


def _product(x: Tensor, mask: Tensor, scale: float, unit: str) -> Tensor:
    if x.stride() != mask.stride() or x.is_neg() or not in_memory(x, x.element_size()):
        x = torch.empty_like(mask, dtype=x.dtype).copy_(x)
    y, count = torch.empty_like(x), x.numel()
    if count:
        launch = _launch(x.dtype, unit)
        blocks, rest = divmod(count, LANES)
        whole, behind = zip(*(in_blocks(flat(each), rest) for each in (x, mask, y)))
        launch(blocks, rest, *whole[:2], _scale(scale, x.dtype), whole[2], *behind)
    return y


def in_blocks(x: Tensor, rest: int) -> tuple[Tensor, Tensor]:
    """Split a vector into (blocks, `LANES`) and the elements behind them."""
    at = x.numel() - rest
    return x[:at].view(-1, LANES), x[at:]


def flat(x: Tensor) -> Tensor:
    """(n,) the elements of a tensor without gaps, as they lie in memory."""
    x = x.detach()
    return x.view(-1) if x.is_contiguous() else x.as_strided((x.numel(),), (1,))


def _gradients(structure, attributes, saved, memo, needed, cotangent):
    return masked(structure, (cotangent, saved[0]), attributes) if needed[0] else None, None


masked = Operator(
    "masked",
    run=_run,
    gradients=_gradients,
    operands="Tensor x, Tensor mask",
    attributes="float scale, bool dead",
    check=_check,
    like=lambda structure, operands, attributes, transposed: torch.empty_like(operands[1], dtype=operands[0].dtype),
    saved=lambda attributes, operands, results: ((operands[1],), None),
)
"""(None, (x, mask), (scale, dead)) to x * (mask ? scale : 0). mask: uint8, of x's shape and without gaps between its
elements, whose order in memory the result has. scale: a number of x's type. dead: 0 where the mask is from ``DEAD`` on.
"""
