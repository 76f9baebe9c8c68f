"""From a program and its schedule for a GPU to a kernel."""

from __future__ import annotations

from dataclasses import replace

from ...compiler.cache.kernel import Kernel
from ...compiler.codegen import cuda_target
from ...compiler.compile import compile_program
from ...compiler.language.program import Program
from ...compiler.schedules.sequence import Schedule
from ...runtime.devices import keep_current_device


def build(program: Program, schedule: Schedule, arch: str) -> Kernel:
    """The kernel of a program for one architecture: where kernels for a GPU come from, all of them."""
    kernel = compile_program(program, schedule, cuda_target(arch))
    return replace(kernel, entry=keep_current_device(kernel.entry))
