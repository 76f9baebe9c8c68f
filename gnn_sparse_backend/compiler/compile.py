"""From a stage I program and a schedule to a kernel, through the caches.

In two lines:

    kernel = compile_program(program, CpuSchedule())
    kernel(m, n, nnz, indptr, indices, A, B, C)
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from tvm import tirx

from .cache.default import get_kernel
from .cache.kernel import Kernel
from .codegen import Target, build_shared, host_target
from .codegen.cuda.library import build_cuda_shared, cuda_key
from .codegen.interrupts import interrupts_held
from .language.program import Program
from .loops.horizontal import fuse_grids, fuse_horizontally
from .lowering import flatten, lower
from .position.validate import validate_position
from .schedules.cpu import CpuSchedule
from .schedules.cuda import CudaSchedule
from .schedules.cuda_teams import CudaTeams
from .schedules.serial import serialise

Schedule: TypeAlias = CpuSchedule | CudaSchedule | CudaTeams


def stage3(program: Program, schedule: Schedule, serial: bool = False) -> tirx.PrimFunc:
    """The scheduled, flattened TVM function of a program; its sub-kernels fused where the schedule wants it.

    Args:
        program: a stage I program.
        schedule: how it runs.
        serial: make all loops serial behind the schedule, which is how a schedule for a GPU runs on a CPU.
    """
    if serial and not isinstance(schedule, CpuSchedule):
        schedule = schedule.without_instructions()
    program = schedule.prepare(program)
    stage2 = schedule.apply(lower(program))
    if serial:
        stage2 = serialise(stage2)
    validate_position(stage2)
    function = flatten(stage2)
    if isinstance(schedule, CudaTeams) and schedule.fuse:
        return fuse_grids(function, program, schedule.apart)
    return fuse_horizontally(function, program) if schedule.fuse else function


def compile_program(program: Program, schedule: Schedule, target: Target | None = None, serial: bool = False) -> Kernel:
    """The kernel of `program` under `schedule`, for this CPU unless `target` says otherwise.

    A schedule for a GPU wants a cuda target, or `serial` and a CPU (`stage3`).

    From memory, else from the disk cache, else compiled. Raises StageIError where the program is not well formed or
    the schedule refuses it, BuildError where code generation fails.
    """
    target = target or host_target()

    def build(folder: Path) -> Path:
        with interrupts_held():
            function = stage3(program, schedule, serial)
            (folder / "stage3.py").write_text(function.script(), encoding="utf-8")
            return (build_cuda_shared if target.is_cuda else build_shared)(function, target, folder)

    plan = f"{schedule!r}, serial" if serial else repr(schedule)
    key = cuda_key(target) if target.is_cuda else target
    return get_kernel(program.script(), plan, key, build, name=program.name, symbol=program.name)
