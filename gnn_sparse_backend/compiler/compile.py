"""From a stage I program and a schedule to a kernel, through the caches.

In two lines:

    kernel = compile_program(program, cpu_schedule())
    kernel(m, n, nnz, indptr, indices, A, B, C)

A kernel that is in a cache is found by its texts alone: what lowers and builds is imported when one is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..frozen import dataclass
from .cache.bounded import kept
from .cache.default import default_store, get_kernel
from .cache.kernel import Kernel
from .cache.key import KernelKey
from .codegen import Target, host_target, running_target
from .language.axes import StageIError
from .language.program import Program
from .schedules.sequence import Schedule, author_of, is_for_gpu, of_stage

if TYPE_CHECKING:
    from ..deferred import tirx
    from .position.function import PositionFunction


def stage2(program: Program, schedule: Schedule, serial: bool = False) -> PositionFunction:
    """The scheduled function of a program in position space.

    Args:
        program: a stage I program.
        schedule: how it runs.
        serial: make all loops serial behind the schedule, which is how a schedule for a GPU runs on a CPU.
    """
    from .lowering import lower
    from .position.validate import validate_position
    from .schedules.primitives.shared.local_memory import locals_on_stack
    from .schedules.serial import serialise

    for step in of_stage(schedule, 1):
        program = step(program)
    scheduled = lower(program)
    for step in of_stage(schedule, 2):
        scheduled = step(scheduled, instructions=not serial)
    if not is_for_gpu(schedule):
        scheduled = locals_on_stack(scheduled)
    scheduled = scheduled.with_function(scheduled.function.with_attr("global_symbol", scheduled.name))
    if serial:
        scheduled = serialise(scheduled)
    validate_position(scheduled)
    return scheduled


def stage3(program: Program, schedule: Schedule, serial: bool = False) -> tirx.PrimFunc:
    """The scheduled, flattened TVM function of a program; its sub-kernels fused where the schedule wants it.

    Arguments are those of `stage2`.
    """
    from .lowering import flatten

    scheduled = stage2(program, schedule, serial)
    function = flatten(scheduled)
    for step in of_stage(schedule, 3):
        function = step(function, scheduled.program)
    return function


def compile_program(program: Program, schedule: Schedule, target: Target | None = None, serial: bool = False) -> Kernel:
    """The kernel of `program` under `schedule`, for this CPU unless `target` says otherwise.

    A schedule for a GPU wants a cuda target, or `serial` and a CPU (`stage3`).

    From memory, else from a pack, else from the disk cache, else compiled. Inside `compiling_for` a target that does
    not run here it is that of this CPU, and the one for the target is noted.

    Raises StageIError where the program is not well formed or the schedule refuses it, BuildError where code
    generation fails, MissingKernelError where it would have to be compiled and TVM is not installed.
    """
    target = target or host_target()
    if not serial and not target.is_cuda and is_for_gpu(schedule):
        raise StageIError(
            f"{schedule} is for a GPU, and the target is {target.kind}: give a cuda target, or serial=True to run its "
            "loops one after the other"
        )

    build = _OfProgram(program, schedule, target, serial)
    identity = _identity(program, schedule, target, serial)
    if (stand_in := _stand_in(target)) is not None:
        default_store().note(KernelKey(*identity, program.name), build, program.name)
        return compile_program(program, schedule, stand_in, serial)
    written = _texts(identity[0], schedule, target, serial)
    kernel = get_kernel(*identity, build, name=program.name, symbol=program.name, written=written)
    author = author_of(schedule)
    return replace(kernel, scheduled_by=author) if author else kernel


@dataclass(frozen=True)
class _OfProgram:
    """What compiles the kernel of `compile_program` with these arguments: a value, to be sent to other processes."""

    program: Program
    schedule: Schedule
    target: Target
    serial: bool

    def __call__(self, folder: Path) -> Path:
        from .codegen.build import build_shared
        from .codegen.cuda.library import build_cuda_shared
        from .codegen.interrupts import interrupts_held

        with interrupts_held():
            function = stage3(self.program, self.schedule, self.serial)
            return (build_cuda_shared if self.target.is_cuda else build_shared)(function, self.target, folder)


@dataclass(frozen=True)
class _OfLoops:
    """What compiles the kernel of `compile_loops` with these arguments, for a target."""

    write: Callable[..., tirx.PrimFunc]
    arguments: tuple[object, ...]
    target: Target

    def function(self) -> tirx.PrimFunc:
        return self.write(*self.arguments).with_attr("global_symbol", self.write.__name__)

    def __call__(self, folder: Path) -> Path:
        from .codegen.build import build_shared

        return build_shared(self.function(), self.target, folder)


def kernel_key(program: Program, schedule: Schedule, target: Target, serial: bool = False) -> KernelKey:
    """Return what the kernel of `compile_program` with these arguments is kept under."""
    return KernelKey(*_identity(program, schedule, target, serial), program.name)


def _identity(program: Program, schedule: Schedule, target: Target, serial: bool) -> tuple[str, str, str]:
    """Return (program, plan, target) as texts."""
    plan = f"{schedule!r}, serial" if serial else repr(schedule)
    if not target.is_cuda:
        return program.script(), plan, target.key
    from .codegen.cuda.library import cuda_key

    return program.script(), plan, cuda_key(target)


@kept
def compile_loops(write: Callable[..., tirx.PrimFunc], *arguments: object) -> Kernel:
    """The kernel for this CPU of a function written at stage III, which ``write(*arguments)``, a function of
    `compiler.loops`, returns. It is found and kept as that of a program is, by the name of ``write`` and its arguments,
    and asked for at every call of what runs it.

    Raises BuildError where code generation fails.
    """
    name, target = write.__name__, running_target()
    build = _OfLoops(write, arguments, target)

    def assembly() -> str:
        from .codegen.build import generate_assembly

        return generate_assembly(build.function(), target)

    program, plan = f"{write.__module__}.{name}{arguments!r}", "written at stage III"
    if (wanted := host_target()) != target:
        default_store().note(KernelKey(program, plan, wanted.key, name), replace(build, target=wanted), name)
    texts = {"stage3": lambda: str(build.function().script()), "assembly": assembly}
    return get_kernel(program, plan, target, build, name=name, symbol=name, written=texts)


def _stand_in(target: Target) -> Target | None:
    """The target whose kernels run in the place of one that does not run here; None where a target's own do."""
    running = None if target.is_cuda or target != host_target() else running_target()
    return None if running is None or running == target else running


def _texts(text: str, schedule: Schedule, target: Target, serial: bool) -> Mapping[str, Callable[[], str]]:
    """What writes the stages of a kernel, from the text of its program, which takes less memory than the program."""

    def of(stage: Callable[..., PositionFunction | tirx.PrimFunc]) -> PositionFunction | tirx.PrimFunc:
        from .language.printer import program_from_script

        return stage(program_from_script(text), schedule, serial)

    def assembly() -> str:
        from .codegen.build import generate_assembly

        return generate_assembly(of(stage3), target)

    def ptx() -> str:
        from .codegen.build import generate_cuda
        from .codegen.cuda.machine_code import compile_cuda, default_compiler

        source = generate_cuda(of(stage3), target.arch)
        return compile_cuda(source, target.arch, "ptx", default_compiler()).code.rstrip(b"\0").decode()

    texts = {"stage2": lambda: of(stage2).script(), "stage3": lambda: of(stage3).script()}
    return texts | ({"ptx": ptx} if target.is_cuda else {"assembly": assembly})
