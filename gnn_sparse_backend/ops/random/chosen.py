"""One of two numbers for each element of a mask, in one pass: what dropouts multiply by or add."""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.language.builder import ProgramBuilder
from ...compiler.language.expr import cast, differ, select
from ...compiler.language.program import Program
from ...compiler.language.types import ACCUMULATOR
from ...compiler.schedules.cpu import cpu_schedule
from ...runtime.type_names import accumulator_of, type_name
from ..core.executable import Launch, compiled, in_threads
from .masked import LANES, flat, in_blocks


def choice(dtype: str) -> Program:
    """The program ``Y[i] = Mask[i] ? Numbers[1] : Numbers[0]``. Parameters: (blocks, rest, Mask, Numbers, Y, Mask_rest,
    Y_rest), as those of `masked_product`; Numbers of (2,).
    """
    p = ProgramBuilder("choice")
    wide = ACCUMULATOR[dtype]
    blocks, rest = p.sizes("blocks", "rest")
    B, K, R, Two = (p.dense_fixed(*axis) for axis in (("B", blocks), ("K", LANES), ("R", rest), ("Two", 2)))
    Mask, Numbers = p.buffer("Mask", (B, K), "uint8"), p.buffer("Numbers", (Two,), wide)
    Y = p.buffer("Y", (B, K), dtype)
    Mask_rest, Y_rest = p.buffer("Mask_rest", (R,), "uint8"), p.buffer("Y_rest", (R,), dtype)
    with p.iterate("whole", (B,), "S", ("b",)) as (b,), p.iterate("lanes", (K,), "S", ("k",)) as (k,):
        Y[b, k] = cast(dtype, select(differ(Mask[b, k], 0), Numbers[1], Numbers[0]))
    with p.iterate("remainder", (R,), "S", ("r",)) as (r,):
        Y_rest[r] = cast(dtype, select(differ(Mask_rest[r], 0), Numbers[1], Numbers[0]))
    return p.finish()


def chosen(mask: Tensor, numbers: Tensor) -> Tensor:
    """``torch.where(mask, numbers[1], numbers[0])``, of no history. mask: uint8, of the CPU, of one element at least,
    without gaps. numbers: (2,), of a type that kernels take.
    """
    y = torch.empty_like(mask, dtype=numbers.dtype)
    blocks, rest = divmod(mask.numel(), LANES)
    (mask, mask_rest), (y_blocks, y_rest) = (in_blocks(flat(each), rest) for each in (mask, y))
    wide = numbers.to(accumulator_of(numbers.dtype))
    _launch(numbers.dtype)(blocks, rest, mask, wide, y_blocks, mask_rest, y_rest)
    return y


@kept
def _launch(dtype: torch.dtype) -> Launch:
    return compiled(choice(type_name(dtype)), cpu_schedule(), in_threads(True))
