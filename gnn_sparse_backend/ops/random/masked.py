"""y = x where a mask is 1, scaled, else x * 0: what dropout does behind its draws, in one pass.

    y[i] = x[i] * (mask[i] ? scale : 0)

An infinity that is dropped is NaN, and a negative number -0, as in the product with a tensor of scales and zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import constant_argument
from ...compiler.compile import compile_program
from ...compiler.language.builder import ProgramBuilder
from ...compiler.language.expr import Expr, as_expr, cast, differ, number, select
from ...compiler.language.program import Program
from ...compiler.schedules.cpu import CpuSchedule
from ...runtime.type_names import type_name
from ..core.library import register
from ..core.operands import check_dense
from ..core.operator import Operator
from ..core.ran import Launch, in_threads

LANES = 32
"""Elements that are multiplied at once."""


def masked_product(dtype: str) -> Program:
    """The program. Parameters: (n, blocks, rest, X, Mask, Scale, Y), of (n,), (n,) of uint8, (1,) and (n,), where n is
    blocks * `LANES` + rest. The product is rounded once.
    """
    p = ProgramBuilder("masked_product")
    wide = "float64" if dtype == "float64" else "float32"
    n, blocks, rest = p.sizes("n", "blocks", "rest")
    I, One = p.dense_fixed("I", n), p.dense_fixed("One", 1)
    X, Mask = p.buffer("X", (I,), dtype), p.buffer("Mask", (I,), "uint8")
    Scale, Y = p.buffer("Scale", (One,), wide), p.buffer("Y", (I,), dtype)

    def multiply(i: Expr) -> None:
        factor = select(differ(Mask[i], 0), Scale[0], as_expr(0.0, wide))
        Y[i] = cast(dtype, cast(wide, X[i]) * factor)

    B, K, R = p.dense_fixed("B", blocks), p.dense_fixed("K", LANES), p.dense_fixed("R", rest)
    with p.iterate("whole", (B,), "S", ("b",)) as (b,), p.iterate("lanes", (K,), "S", ("k",)) as (k,):
        multiply(b * LANES + k)
    with p.iterate("remainder", (R,), "S", ("r",)) as (r,):
        multiply(number(blocks) * LANES + r)
    return p.finish()


@kept
def _launch(dtype: torch.dtype) -> Launch:
    return Launch(compile_program(masked_product(type_name(dtype)), CpuSchedule()), in_threads(True))


@kept
def _scale(scale: float, dtype: torch.dtype):
    return constant_argument(torch.tensor([scale], dtype=torch.float64 if dtype is torch.float64 else torch.float32))


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


def _run(structure: None, operands, attributes) -> Tensor:
    x, mask = operands
    if x.stride() != mask.stride() or x.is_neg():
        x = torch.empty_like(mask, dtype=x.dtype).copy_(x)
    y, count = torch.empty_like(x), x.numel()
    if count:
        _launch(x.dtype)(count, *divmod(count, LANES), flat(x), flat(mask), _scale(attributes[0], x.dtype), flat(y))
    return y


def flat(x: Tensor) -> Tensor:
    """(n,) the elements of a tensor without gaps, as they lie in memory."""
    x = x.detach()
    return x.view(-1) if x.is_contiguous() else x.as_strided((x.numel(),), (1,))


def _gradients(structure, attributes, saved, memo, needed, cotangent):
    return masked(structure, (cotangent, saved[0]), attributes) if needed[0] else None, None


def _record(structure, operands, attributes, needed):
    return _run(structure, operands, attributes), (operands[1],), None


masked = register(
    Operator(
        "masked",
        run=_run,
        record=_record,
        gradients=_gradients,
        operands="Tensor x, Tensor mask",
        attributes="float scale",
        check=_check,
        like=lambda structure, operands, attributes, transposed: torch.empty_like(operands[1], dtype=operands[0].dtype),
        saved=lambda attributes, operands, results: ((operands[1],), None),
    )
)
"""(None, (x, mask), (scale,)) to x * (mask ? scale : 0). mask: uint8, of x's shape and without gaps between its
elements, whose order in memory the result has. scale: a number of x's type."""
