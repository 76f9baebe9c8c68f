"""What ``precompile`` found: a table when printed."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from rich.table import Table

from ..planner.plan import Plan
from ..runtime.text import render
from ..structures.accounting.epoch import EpochMemory


@dataclass
class Row:
    """One operator on one structure.

    features: a width, as the operator has them. state: ``measured``; ``measured 3 of 5`` plans, where the budget ended;
    ``known`` from before; ``compiled``, and to run by rules; or ``not reached``, where the budget ended before.
    plan: the fastest, None where none is known. seconds: of a call by it. rules: of a call by the rules' plan, where it
    was measured now. plans: how many were measured. tuned: whether there are plans to choose from; where there is one
    alone, all is done that is to do when it is compiled. tried: of a search, (plan, predicted, measured seconds) of all
    candidates, None where one was not measured.
    """

    graph: str
    op: str
    features: int | tuple[int, ...]
    dtype: str
    state: str
    plan: Plan | None = None
    seconds: float | None = None
    rules: float | None = None
    plans: int = 0
    tuned: bool = True
    before: float | None = None
    tried: tuple[tuple[Plan, float | None, float | None], ...] = ()

    @property
    def regret(self) -> float | None:
        """Time of the plan that ran before a search over that of the fastest, minus one; None where it was not
        measured.
        """
        return None if self.before is None or self.seconds is None else self.before / self.seconds - 1

    @property
    def regret_now(self) -> float | None:
        """Regret of the plan that runs from now on: 0 where any was measured, for the fastest runs."""
        return None if self.regret is None else 0.0

    @property
    def done(self) -> bool:
        return self.state in (("measured", "known") if self.tuned else ("compiled",))


@dataclass
class Report:
    """Rows in the order of the work. graphs: names of the graphs. interrupted: Ctrl-C ended it; what was measured until
    then is kept. memory: what an epoch on each graph takes, where that was asked for.
    """

    rows: list[Row]
    graphs: list[str] = field(default_factory=list)
    interrupted: bool = False
    memory: list[EpochMemory] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every plan of every operator was measured, now or before, and what has one plan alone is compiled."""
        return not self.interrupted and all(row.done for row in self.rows)

    def table(self) -> Table:
        result = Table(title_justify="left", title="Plans" + (" (interrupted)" if self.interrupted else ""))
        searched = any(row.tried for row in self.rows)
        regrets = ("regret before", "after") if searched else ()
        words = "graph", "operator", "features", "type", "plan", "µs a call", "rules' plan, µs", *regrets, "state"
        for heading in words:
            right = "µs" in heading or heading in ("features", *regrets)
            result.add_column(heading, justify="right" if right else "left")
        above = None
        for row in self.rows:
            name, above = "" if row.graph == above else row.graph, row.graph
            result.add_row(
                name,
                row.op,
                str(row.features),
                row.dtype,
                "" if row.plan is None else str(row.plan),
                micro(row.seconds),
                micro(row.rules),
                *(map(share, (row.regret, row.regret_now)) if searched else ()),
                row.state,
            )
        return result

    @property
    def regrets(self) -> str:
        """Mean and worst regret of the plans that ran before a search, in words; "" where none was measured."""
        found = [row.regret for row in self.rows if row.regret is not None]
        if not found:
            return ""
        return (
            f"regret of the plans before, over the fastest that was measured: {statistics.fmean(found):.1%} on "
            f"average, {max(found):.0%} at worst, over {len(found)} kernels; of those that run from now on: 0%"
        )

    def __str__(self) -> str:
        if not self.rows:
            return "no graph with edges: nothing to compile\n"
        return render(self.table(), *filter(None, (self.regrets,)), *map(str, self.memory))


def share(regret: float | None) -> str:
    """Return per cent, nothing where nothing was measured."""
    return "" if regret is None else f"{regret:.0%}"


def micro(seconds: float | None) -> str:
    """Return microseconds with one decimal, nothing where nothing was measured."""
    return "" if seconds is None else f"{seconds * 1e6:,.1f}"
