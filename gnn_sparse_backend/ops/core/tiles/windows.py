"""Loops over windows that a block of warps leaves in shared memory, each of which it multiplies.

    plain                                   pipelined
                                            zeros in shared memory
    for each window:                        for each window:
        for each of its parts:                  fetch all of it into registers
            fetch it into registers             multiply the window before, which is in shared memory
            keep it in shared memory            keep it in shared memory
        multiply them                       multiply the last window

Pipelined, a window is on its way from global memory while the one before is multiplied. This is the loop of the
double-buffered products of matrices (CUTLASS, "Efficient GEMM in CUDA", software pipelining), turned by a step: there
the window ahead is fetched, here the one behind is multiplied. So a program names no window but the one that it visits:
nothing is read past the last one, and the axis of the windows may be sparse, where the next coordinate has no name.
What is multiplied before the first window are zeros, which add nothing, while that window is on its way; of no window
at all, the same zeros are what is multiplied after the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....compiler.language.axes import Axis
from ....compiler.language.builder import ProgramBuilder
from ....compiler.language.expr import Expr

_LAST = "_last"


def each_window(
    p: ProgramBuilder,
    name: str,
    axis: Axis,
    variable: str,
    parts: Sequence[Callable[[Expr], Callable[[], None]]],
    multiply: Callable[..., None],
    blank: Callable[[], None] | None = None,
) -> None:
    """Write the iteration `name` over the windows of `axis`, pipelined where there is a `blank`.

    parts: functions fetch(w), which write what fetches a part of window w and return the function that writes what
    keeps it. multiply(suffix): writes the product of what is kept, its iterations and buffers named with the suffix: it
    is written twice. blank(): writes zeros in the place of what is kept.
    """
    if blank is not None:
        blank()
    with p.iterate(name, (axis,), "R", (variable,)) as (at,):
        if blank is None:
            for fetch in parts:
                fetch(at)()
            multiply("")
        else:
            keeps = [fetch(at) for fetch in parts]
            multiply("")
            for keep in keeps:
                keep()
    if blank is not None:
        multiply(_LAST)


def instructions(pipelined: bool) -> tuple[str, ...]:
    """The iterations that are one instruction of Tensor Cores each, where a product has one called "mma"."""
    return ("mma", "mma" + _LAST) if pipelined else ("mma",)
