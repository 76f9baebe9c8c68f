"""Plans of products by relations, or by the offsets of a convolution: a dataflow, and how it is scheduled.

Rules for them stand in `relational` and `convolution`. Dataflows and schedules that a search tries are listed here.
"""

from __future__ import annotations

from typing import ClassVar

from ...frozen import dataclass
from ..plan import Plan
from .spmm import serial_work

# Edges that the gathers of a panel run ahead: sums of a pair are short, so rows of the next pairs are on their way too.
GATHER_AHEAD = 16
# What a search tries: thousandths of the rules' tasks, 0 for all of them, and edges that gathers run ahead.
TASKS_SEARCHED, AHEAD_SEARCHED = (0, 250, 4000), (GATHER_AHEAD, 0, 8, 32)
# Vectors of the only row of a block: enough sums for additions not to wait for each other.
ROW_VECTORS = (4, 2, 1)
_CHEAPER = "each relation's cheaper"


@dataclass(frozen=True)
class RelationalPlan(Plan, strategy="relational"):
    """How a product over relations, a sum of outer products, or dots are made.

    dataflow: of a product one of `ORDERS`, of the others the ends whose pairs they go by, "rows" or "columns"; "" for
        each relation the cheaper by its counts.
    tasks: 0 for as many as the rules have; else thousandths of these. prefetch: edges that gathers run ahead.
    """

    meanings: ClassVar = {
        _CHEAPER: "by row pairs or column pairs, as the counts of each have it",
        "tasks": "ranges of rows, or of the pairs of a relation, which threads share",
        "ahead": "gathered rows are fetched that number of edges before they are needed",
    }

    dataflow: str = ""
    tasks: int = 0
    prefetch: int = GATHER_AHEAD

    def __str__(self) -> str:
        scaled = f", {self.tasks / 1000:g} times the tasks" if self.tasks else ""
        ahead = f", {self.prefetch} ahead" if self.prefetch else ""
        return f"{self.dataflow or _CHEAPER}{scaled}{ahead}"

    def scaled(self, tasks: int) -> int:
        """The rules' number of tasks as the plan has it."""
        return max(1, tasks * self.tasks // 1000) if self.tasks else tasks


BY_RULES = RelationalPlan()


def relational_plans(orders: tuple[str, ...], stored: tuple[str, ...] = ()) -> tuple[RelationalPlan, ...]:
    """What a search tries: each order by every schedule, the rules' own first. stored: orders without schedules."""
    made = [
        RelationalPlan(order, tasks, prefetch)
        for tasks in TASKS_SEARCHED
        for prefetch in AHEAD_SEARCHED
        for order in ("", *orders)
    ]
    return *made, *(RelationalPlan(order) for order in stored)


@dataclass(frozen=True)
class ConvPlan(Plan, strategy="convolution"):
    """How products of a convolution, or sums of outer products, are made.

    dataflow: one of `ORDERS` or "depthwise"; of sums "sums" or "rgms".
    tasks: 0 for as many as the rules have; else a multiple of these. vectors: of a tile, 0 for as many as the rules
        have. alone: whether one thread takes all tasks, however much there is to do.
    """

    meanings: ClassVar = {
        "offsets": "offset after offset over a range of rows, whose sums wait in the first-level cache",
        "rows": "rows that meet the same offsets, whose sums stay in registers",
        "tasks": "ranges of rows, or shares of pairs, which threads take one after the other",
        "vectors": "columns that a tile has, in vectors",
    }

    dataflow: str
    tasks: int = 0
    vectors: int = 0
    alone: bool = False

    def __str__(self) -> str:
        tasks = f", {self.tasks} times the tasks" if self.tasks else ""
        vectors = f", tiles of {self.vectors} vectors" if self.vectors else ""
        return f"{self.dataflow}{tasks}{vectors}{', 1 thread' * self.alone}"

    def scaled(self, tasks: int) -> int:
        """The rules' number of tasks as the plan has it."""
        return tasks * (self.tasks or 1)

    def is_parallel(self, work: int, threads: int) -> bool:
        """Whether several threads share ``work`` multiply-adds."""
        return threads > 1 and not self.alone and (work >= serial_work() or self.tasks > 1)


def conv_plans(orders: tuple[str, ...]) -> tuple[ConvPlan, ...]:
    """What a search tries of these dataflows, the rules' own, which is the first of them, first."""
    found = dict.fromkeys(ConvPlan(order) for order in orders)
    for order in (order for order in orders if order != "rgms"):
        found |= dict.fromkeys(ConvPlan(order, tasks) for tasks in (2, 4))
        found[ConvPlan(order, alone=True)] = None
        if order in ("offsets", "rows", "row", "sums"):
            found |= dict.fromkeys(
                ConvPlan(order, tasks, vectors)
                for vectors in (ROW_VECTORS if order == "row" else (2, 1))
                for tasks in (0, 4)
            )
    return tuple(found)
