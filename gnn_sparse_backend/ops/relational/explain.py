"""``gsb.explain`` on a relational graph: in which order each relation's products are made, and why."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...compiler.language.types import ACCUMULATOR, BYTES
from ...compiler.own_schedules import OwnSchedule, in_words
from ...formats.counts import added_at
from ...frozen import dataclass
from ...planner.cpu.relational import MARGIN, RelationCounts, is_small, order_costs, sum_by_columns
from ...planner.cpu.spmm import serial_work
from ...planner.cuda.cost import NEARER
from ...planner.words import size
from ...runtime import devices
from ...runtime.precision import on_tensor_cores
from ...runtime.text import render
from ...runtime.type_names import check_dtype, type_name
from ...structures.relational.graph import RelGraph
from .executables_cpu import tasks_of_product
from .orders_cuda import bytes_of_orders, shape_of
from .schedules_cuda import MULTIPLIED, order_of

LISTED = 20
"""Relations in the table, those of the most work first."""


@dataclass(frozen=True)
class RelationPlan:
    """One relation of a product.

    edges, row_pairs, column_pairs: sizes. gathered: edges that go by row pairs: the rows of x of a pair are summed,
    then multiplied. The others go by column pairs: a row of x is multiplied, and the product added to the rows. gather,
    scatter: what either costs for all edges, in multiply-adds.
    """

    name: str
    edges: int
    row_pairs: int
    column_pairs: int
    gathered: int
    gather: float
    scatter: float

    @property
    def order(self) -> str:
        """``gather``, ``scatter``, or ``both`` in different ranges of rows."""
        if self.gathered in (0, self.edges):
            return "gather" if self.gathered else "scatter"
        return "both"


@dataclass(frozen=True)
class RelationalExplanation:
    """The orders of a relational product; ``str()`` is the text for people.

    in_features, out_features: widths of a row of x and of the result. rows, columns: of the structure; ``backward``: of
    its transpose, which is the gradient to x. relations: those with edges, most work first. tasks: ranges of rows that
    threads share. pairs_at_a_time: of a panel, whose sums or products stay in the first-level cache. sums_by_columns:
    relations whose gradient of the matrix adds up the cotangent over column pairs, and not x over row pairs. moved: on
    a GPU, bytes that each order moves which can be had there; else empty. order: the one of them that serves all
    relations; else None.
    """

    in_features: int
    out_features: int
    dtype: str
    backward: bool
    counts: RelationCounts
    columns: int
    num_relations: int
    relations: tuple[RelationPlan, ...]
    tasks: int
    pairs_at_a_time: int
    sums_by_columns: int
    small: bool
    device: str
    moved: dict[str, float]
    full: bool

    @property
    def order(self) -> str | None:
        return order_of(self.moved) if self.moved else None

    schedules: tuple[OwnSchedule, ...] = ()

    def __str__(self) -> str:
        why = (Padding(Text(reason), (0, 0, 0, 2)) for reason in self.reasons())
        c = self.counts
        what = "the gradient to x of rgms" if self.backward else "rgms"
        return render(
            f"{what}, {self.in_features} to {self.out_features} features ({self.dtype}) on {c.rows:,} x "
            f"{self.columns:,} with {c.edges:,} edges of {self.num_relations:,} relations, {self.device}",
            f"pairs: {c.row_pairs:,} of a row and a relation, {c.column_pairs:,} of a column and a relation",
            *why,
            *in_words(self.schedules),
            "",
            self._table(),
            _WORDS,
        )

    def reasons(self) -> list[str]:
        """Sentences that say what decided."""
        if self.order is not None:
            others = "; ".join(
                f"{order} {size(count)}" for order, count in sorted(self.moved.items(), key=lambda item: item[1])
            )
            found = [
                f"on a GPU one order serves all relations: {self.order}, which moves fewest bytes ({others}; one of "
                f"a matrix counts for 1 / {NEARER})",
                _ORDERS[self.order],
                "nothing is added atomically, with deterministic algorithms and without",
            ]
            if self.full:
                found.insert(
                    1,
                    "float32 is multiplied in full precision, as PyTorch's matmul precision asks: a launch whose "
                    f"multiply-adds take longer than its bytes counts for these, {MULTIPLIED:.0f} for a byte",
                )
            return found
        if not self.relations:
            return ["there are no edges: the result is zero, and no kernel runs"]
        by = {order: sum(plan.order == order for plan in self.relations) for order in ("gather", "scatter", "both")}
        found = [
            f"{by['gather']} relations by gather, {by['scatter']} by scatter, {by['both']} by both: the cheaper in "
            f"each range of rows, scatter where it costs less than {MARGIN} of gather"
        ]
        if self.small:
            found = [
                f"all relations by gather on one thread: less than {serial_work():,} multiply-adds, as sampled batches "
                "are, which are to run on the same kernels"
            ]
        panel = self.pairs_at_a_time * max(self.in_features, self.out_features) * BYTES[ACCUMULATOR[self.dtype]]
        found.append(
            f"{self.tasks} ranges of rows, whose results stay near while the relations take turns; panels of up to "
            f"{self.pairs_at_a_time} pairs ({size(panel)}), beyond which nothing is stored"
        )
        if not self.backward:
            found.append(
                f"the gradient of the matrices adds up the cotangent over column pairs for {self.sums_by_columns} "
                f"relations, x over row pairs for {len(self.relations) - self.sums_by_columns}"
            )
        return found

    def _table(self) -> Table:
        table = Table(title="relations, most work first", title_justify="left")
        for heading in ("relation", "edges", "row pairs", "column pairs", "gather, M", "scatter, M", "order"):
            table.add_column(heading, justify="left" if heading in ("relation", "order") else "right")
        for plan in self.relations[:LISTED]:
            order = plan.order if self.order is None else self.order
            share = f" ({plan.gathered / plan.edges:.0%} of the edges by gather)" if order == "both" else ""
            table.add_row(
                plan.name,
                f"{plan.edges:,}",
                f"{plan.row_pairs:,}",
                f"{plan.column_pairs:,}",
                f"{plan.gather / 1e6:,.2f}",
                f"{plan.scatter / 1e6:,.2f}",
                order + share,
            )
        if len(self.relations) > LISTED:
            rest = self.relations[LISTED:]
            table.add_row(
                f"{len(rest)} more",
                *(f"{sum(getattr(plan, name) for plan in rest):,}" for name in ("edges", "row_pairs", "column_pairs")),
                *(f"{sum(getattr(plan, name) for plan in rest) / 1e6:,.2f}" for name in ("gather", "scatter")),
                "",
            )
        return table


_ORDERS = {
    "rows": "rows: a block owns rows of the result, and adds up the products of their pairs in registers, in one "
    "launch; nothing is stored but the result",
    "tiles": "tiles: the rows of x of each row pair are summed and multiplied; the products of all pairs are stored, "
    "and added up by rows in a second launch",
    "transform": "transform: the rows of x of all column pairs are multiplied; their products are stored, and added up "
    "over the edges in a second launch",
}
_WORDS = (
    "gather: the rows of x of each (row, relation) pair are summed, and the sum multiplied; scatter: the row of x of "
    "each (column, relation) pair is multiplied, and the product added to the rows; M: millions of multiply-adds, or "
    "of what takes as long"
)


def explain_relational(
    rel: RelGraph, features: int | Sequence[int] = 64, *, dtype="float32", backward: bool = False
) -> RelationalExplanation:
    """``gsb.explain`` on a ``RelGraph``; features: of x and the result, or (F_in, F_out)."""
    in_features, out_features = _widths(features)
    dtype = check_dtype(dtype)
    if backward:
        in_features, out_features = out_features, in_features
    side, other = rel.side(backward), rel.side(not backward)
    counts = RelationCounts(side.sizes[0], rel.num_edges, side.pairs.count, other.pairs.count)
    small = is_small(counts, in_features, out_features)
    row_pairs, column_pairs = (end.pairs.relation_ptr.diff().tolist() for end in (side, other))
    edges = side.pairs.indptr[side.pairs.relation_ptr].diff().tolist()
    arch = devices.arch_of(rel.device)
    moved, tasks, most, gathered = {}, 1, 1, [0] * rel.num_relations
    if arch and rel.num_edges:
        moved = bytes_of_orders(rel, backward, shape_of(1, in_features, out_features, dtype, arch))
    elif rel.num_edges:
        most, _, (_, gathers, _) = tasks_of_product(rel, backward, 1, in_features, out_features, dtype)
        tasks, gathered = gathers.tasks, _edges_by_relation(gathers, rel.num_relations)
    plans = []
    for number in range(rel.num_relations):
        if edges[number]:
            sizes = row_pairs[number], column_pairs[number], edges[number]
            name = str(number) if rel.relations is None else " ".join(rel.relations[number])
            costs = order_costs(*sizes, in_features, out_features, 1, dtype.itemsize)
            plans.append(RelationPlan(name, edges[number], *sizes[:2], gathered[number], *costs))
    plans.sort(key=lambda plan: -min(plan.gather, plan.scatter))
    by_columns = sum(
        not small and bool(sum_by_columns(plan.row_pairs, plan.column_pairs, plan.edges, in_features, out_features))
        for plan in plans
    )
    device = f"a GPU of {arch}" if arch else f"{torch.get_num_threads()} threads"
    full = bool(arch) and dtype is torch.float32 and not on_tensor_cores(dtype)
    product = in_features, out_features, type_name(dtype), backward
    structure = counts, side.sizes[1], rel.num_relations, tuple(plans)
    return RelationalExplanation(*product, *structure, tasks, most, by_columns, small, device, moved, full)


def _edges_by_relation(panels, relations: int) -> list[int]:
    """Edges of each relation in the panels."""
    of_pair = panels.relation.long().repeat_interleave(panels.size.long())
    lengths = panels.indptr.diff().long()
    return added_at(of_pair, lengths, relations).tolist()


def _widths(features) -> tuple[int, int]:
    widths = (features, features) if isinstance(features, int) else features
    several = isinstance(widths, (tuple, list)) and len(widths) == 2
    if not several or not all(isinstance(width, int) and type(width) is not bool and width > 0 for width in widths):
        raise ValueError(
            f"features must be a positive whole number, or (features of x, features of the result), got {features!r}"
        )
    return tuple(widths)
