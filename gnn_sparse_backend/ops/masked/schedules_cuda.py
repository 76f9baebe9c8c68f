"""Kernels on the blocks of a mask for a GPU: a team for each row, whose lanes share the features.

They do not use Tensor Cores, and nothing about them has been measured on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable

from ...compiler.cache.bounded import kept
from ...compiler.language.program import Program
from ...compiler.language.types import BYTES
from ...compiler.schedules.teams import team_schedule
from ...planner.cuda.plan import BLOCK, shares
from ..core import cuda_build
from ..core.executable import Launch
from .programs.team_attention import (
    team_backward_keys,
    team_backward_queries,
    team_dots,
    team_forward,
    team_sums,
)
from .programs.teams import TeamSpec

LEAST_LANES = 4
PROGRAMS: dict[str, Callable[[TeamSpec], Program]] = {
    "forward": team_forward,
    "backward_queries": team_backward_queries,
    "backward_keys": team_backward_keys,
    "dots": team_dots,
    "sums": lambda spec: team_sums(spec, False),
    "sums_transposed": lambda spec: team_sums(spec, True),
}


def spec_of(block: int, widths: tuple[int, int], dtype: str, padding: bool = False, dropout: bool = False) -> TeamSpec:
    """How rows of such widths are shared out, and as many rows of a block of the mask to a block of threads as fit."""
    both = [shares(width, BYTES[dtype]) for width in widths]
    lanes = max(LEAST_LANES, *(of.lanes for of in both))
    teams = min(BLOCK // lanes, 1 << (block.bit_length() - 1))
    return TeamSpec(block, *widths, dtype, lanes, (both[0].part, both[1].part), teams, padding, dropout)


@kept
def team_kernel(make: str, spec: TeamSpec, arch: str) -> Launch:
    """The kernel of a program of `PROGRAMS`."""
    program = PROGRAMS[make](spec)
    kernel = cuda_build.build(program, team_schedule(spec.lanes, teams=1), arch)
    return Launch(kernel, f"{make}, teams of {spec.lanes} lanes on {arch}", program.parameter_names)
