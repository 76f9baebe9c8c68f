"""Recurrences along rows on a GPU: a team of lanes for each row."""

from __future__ import annotations

from ....compiler.language.types import BYTES
from ....compiler.schedules.teams import team_schedule
from ....compiler.transforms.compact import compact_parameters
from ....planner.cuda.plan import shares
from ....planner.cuda.rows import TeamPlan
from ...core import cuda_build
from ...core.executable import Launch, builds
from ..programs.recurrence import RecurrenceSpec, recurrence
from ..schedules_cuda import share_features


@builds(RecurrenceSpec, TeamPlan)
def on_teams(spec: RecurrenceSpec, plan: TeamPlan) -> Launch:
    """What runs a recurrence by a plan of teams."""
    of = shares(spec.width, BYTES[spec.dtype])
    program = share_features(compact_parameters(recurrence(spec)), "K", spec.width, of)
    return Launch(cuda_build.build(program, team_schedule(of.lanes), plan.arch), plan)
