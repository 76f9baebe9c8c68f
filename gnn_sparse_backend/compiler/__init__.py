"""The staged sparse compiler: coordinate space, position space, loops, machine code.

What a writer of kernels needs is here:

    from gnn_sparse_backend.compiler import ProgramBuilder, compile_program, cpu_schedule

A program is written with `ProgramBuilder`, changed by transformations such as `decompose_format` and `sparse_reorder`,
run slowly by `interpret`, and made into a kernel by `compile_program` under a schedule. Names are imported when first
used: importing the package costs nothing, and writing and interpreting programs needs no TVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..deferred import names_of

if TYPE_CHECKING:
    from .cache.kernel import Kernel as Kernel
    from .codegen import BuildError as BuildError
    from .codegen import Target as Target
    from .codegen import cuda_target as cuda_target
    from .codegen import host_target as host_target
    from .compile import compile_program as compile_program
    from .compile import stage2 as stage2
    from .compile import stage3 as stage3
    from .language.axes import Axis as Axis
    from .language.axes import Size as Size
    from .language.axes import StageIError as StageIError
    from .language.axes import dense_fixed as dense_fixed
    from .language.axes import dense_variable as dense_variable
    from .language.axes import sparse_fixed as sparse_fixed
    from .language.axes import sparse_variable as sparse_variable
    from .language.builder import ProgramBuilder as ProgramBuilder
    from .language.expr import begin_of as begin_of
    from .language.expr import both as both
    from .language.expr import call as call
    from .language.expr import cast as cast
    from .language.expr import differ as differ
    from .language.expr import either as either
    from .language.expr import end_of as end_of
    from .language.expr import equal as equal
    from .language.expr import exp as exp
    from .language.expr import is_nan as is_nan
    from .language.expr import log as log
    from .language.expr import maximum as maximum
    from .language.expr import minimum as minimum
    from .language.expr import number as number
    from .language.expr import offset_of as offset_of
    from .language.expr import owner_of as owner_of
    from .language.expr import present as present
    from .language.expr import select as select
    from .language.expr import sqrt as sqrt
    from .language.expr import stored as stored
    from .language.expr import tanh as tanh
    from .language.interpret import interpret as interpret
    from .language.printer import program_from_script as program_from_script
    from .language.program import Buffer as Buffer
    from .language.program import Iteration as Iteration
    from .language.program import Program as Program
    from .position.interpret import run_loops as run_loops
    from .position.interpret import run_position as run_position
    from .schedules.cpu import cpu_schedule as cpu_schedule
    from .schedules.cuda import gpu_schedule as gpu_schedule
    from .schedules.primitives.cpu.lanes import fold_in_lanes as fold_in_lanes
    from .schedules.primitives.cpu.prefetch import prefetch_gather as prefetch_gather
    from .schedules.primitives.cpu.unroll_and_jam import unroll_and_jam as unroll_and_jam
    from .schedules.sequence import Schedule as Schedule
    from .schedules.sequence import iteration_primitive as iteration_primitive
    from .schedules.sequence import primitive as primitive
    from .schedules.teams import team_schedule as team_schedule
    from .schedules.units import unit_schedule as unit_schedule
    from .transforms import FormatRewriteRule as FormatRewriteRule
    from .transforms import compact_parameters as compact_parameters
    from .transforms import decompose_format as decompose_format
    from .transforms import group_axis as group_axis
    from .transforms import hoist_axis as hoist_axis
    from .transforms import reduce_in_lanes as reduce_in_lanes
    from .transforms import remove_copies as remove_copies
    from .transforms import share_axis as share_axis
    from .transforms import share_sum as share_sum
    from .transforms import sparse_fuse as sparse_fuse
    from .transforms import sparse_reorder as sparse_reorder
    from .transforms import split_copies as split_copies
    from .transforms import split_parts as split_parts
    from .transforms import tile_axis as tile_axis
    from .transforms.block_rules import bsr_rule as bsr_rule
    from .transforms.block_rules import dbsr_rule as dbsr_rule
    from .transforms.block_rules import dia_rule as dia_rule
    from .transforms.block_rules import sr_bcrs_rule as sr_bcrs_rule
    from .transforms.format_rules import csr_rule as csr_rule
    from .transforms.format_rules import ell_rule as ell_rule

_NAMES = {
    ".cache.kernel": "Kernel",
    ".codegen": "BuildError Target cuda_target host_target",
    ".compile": "compile_program stage2 stage3",
    ".language.axes": "Axis Size StageIError dense_fixed dense_variable sparse_fixed sparse_variable",
    ".language.builder": "ProgramBuilder",
    ".language.expr": "begin_of both call cast differ either end_of equal exp is_nan log maximum minimum number "
    "offset_of owner_of present select sqrt stored tanh",
    ".language.interpret": "interpret",
    ".language.printer": "program_from_script",
    ".language.program": "Buffer Iteration Program",
    ".position.interpret": "run_loops run_position",
    ".schedules.cpu": "cpu_schedule",
    ".schedules.cuda": "gpu_schedule",
    ".schedules.primitives.cpu.lanes": "fold_in_lanes",
    ".schedules.primitives.cpu.prefetch": "prefetch_gather",
    ".schedules.primitives.cpu.unroll_and_jam": "unroll_and_jam",
    ".schedules.sequence": "Schedule iteration_primitive primitive",
    ".schedules.teams": "team_schedule",
    ".schedules.units": "unit_schedule",
    ".transforms": "FormatRewriteRule compact_parameters decompose_format group_axis hoist_axis reduce_in_lanes "
    "remove_copies share_axis share_sum sparse_fuse sparse_reorder split_copies split_parts tile_axis",
    ".transforms.block_rules": "bsr_rule dbsr_rule dia_rule sr_bcrs_rule",
    ".transforms.format_rules": "csr_rule ell_rule",
}

if not TYPE_CHECKING:  # a type checker knows the names above, and that there are no others
    __getattr__, __dir__ = names_of(__name__, _NAMES)
