"""Kernels on the blocks of a mask for the CPU."""

from __future__ import annotations

from collections.abc import Callable

from ...compiler.cache.bounded import kept
from ...compiler.cache.kernel import Kernel
from ...compiler.codegen import Target, host_target
from ...compiler.compile import compile_program
from ...compiler.language.program import Program
from ...compiler.schedules.cpu import CpuSchedule
from ..message.programs.operands import ACCUMULATOR
from .programs.backward import backward
from .programs.forward import forward
from .programs.pairs import masked_dots, masked_sums
from .programs.spec import MaskedSpec

BYTES = {"float64": 8, "float32": 4}
PROGRAMS: dict[str, Callable[[MaskedSpec], Program]] = {
    "forward": forward,
    "backward": backward,
    "dots": masked_dots,
    "sums": lambda spec: masked_sums(spec, False),
    "sums_transposed": lambda spec: masked_sums(spec, True),
}
# Rows and vectors of a tile of sums: with a vector of the right and a number of the left for each they fill the 16
# registers of AVX2.
TILE = 6, 2


def spec_of(
    block: int,
    width: int,
    value_width: int,
    dtype: str,
    padding: bool = False,
    dropout: bool = False,
    target: Target | None = None,
) -> MaskedSpec:
    """The spec of a program on this CPU by default."""
    lanes = max(1, (target or host_target()).vector_bytes // BYTES[ACCUMULATOR[dtype]])
    return MaskedSpec(block, width, value_width, dtype, *TILE, lanes, padding, dropout)


@kept
def masked_kernel(make: str, spec: MaskedSpec, parallel: bool) -> Kernel:
    """The kernel of a program of `PROGRAMS`."""
    return compile_program(PROGRAMS[make](spec), CpuSchedule(parallel=parallel), host_target())
