"""From a stage I program and a schedule to a kernel, through the caches.

    kernel = compile_program(program, CpuSchedule())
    kernel(m, n, nnz, indptr, indices, A, B, C)
"""

from __future__ import annotations

from pathlib import Path

from .coordinate.program import Program
from .flatten import flatten
from .kernels.default import get_kernel
from .kernels.kernel import Kernel
from .loops.horizontal import fuse_horizontally
from .lower import lower
from .position.validate import validate_position
from .schedule.cpu import CpuSchedule
from .schedule.cuda import CudaSchedule
from .target import Target, build_shared, host_target


def stage3(program: Program, schedule: CpuSchedule | CudaSchedule):
    """The scheduled, flattened TVM function of a program; its sub-kernels fused where the schedule wants it."""
    program = schedule.prepare(program)
    stage2 = schedule.apply(lower(program))
    validate_position(stage2)
    function = flatten(stage2)
    return fuse_horizontally(function, program) if schedule.fuse else function


def compile_program(program: Program, schedule: CpuSchedule, target: Target | None = None) -> Kernel:
    """The kernel of `program` under `schedule`, for this CPU unless `target` says otherwise.

    From memory, else from the disk cache, else compiled. Raises StageIError where the program is not well formed or
    the schedule refuses it, BuildError where code generation fails.
    """
    target = target or host_target()

    def build(folder: Path):
        function = stage3(program, schedule)
        (folder / "stage3.py").write_text(function.script(), encoding="utf-8")
        return build_shared(function, target, folder)

    return get_kernel(program.script(), repr(schedule), target, build, name=program.name, symbol=program.name)
