"""In which order an aggregation and a linear map of it are made, and why: ``gsb.explain(graph, op="linear")``."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from ...planner.cpu.relational import ADD_COST, FETCH_COST, MARGIN
from ...runtime.text import render
from ...runtime.type_names import check_dtype, type_name
from ...structures.graph import Graph
from ..core.prepared import Width, pair


def order_costs(
    rows: int, columns: int, edges: int, in_features: int, out_features: int, itemsize: int
) -> tuple[float, float]:
    """What ``(A X) W`` and ``A (X W)`` cost for A of shape (rows, columns), in multiply-adds or in what takes as long:
    a product for each row, or column, of what is stored between the two, and a row of X, or of X W, for each edge.
    """

    def cost(multiplied: int, aggregated: int) -> float:
        product = in_features * out_features + ADD_COST * itemsize * aggregated
        return multiplied * product + edges * FETCH_COST * itemsize * aggregated

    return cost(rows, in_features), cost(columns, out_features)


def maps_first(*sizes_and_widths: int) -> bool:
    """Whether ``A (X W)`` costs less than ``(A X) W``, by `order_costs` of the same."""
    aggregated_first, mapped_first = order_costs(*sizes_and_widths)
    return mapped_first < MARGIN * aggregated_first


@dataclass(frozen=True)
class LinearOrder:
    """The order of an aggregation and a linear map; ``str()`` is the text for people.

    op: the operator's name. aggregated_first, mapped_first: what either order costs, in multiply-adds, or in what takes
    as long. order: that which is taken, ``(A X) W`` or ``A (X W)``.
    """

    op: str
    in_features: int
    out_features: int
    dtype: str
    rows: int
    columns: int
    edges: int
    aggregated_first: float
    mapped_first: float
    order: str

    def __str__(self) -> str:
        table = Table(title="orders (* is the one taken)", title_justify="left")
        for heading in ("order", "features aggregated", "rows multiplied", "predicted, M"):
            table.add_column(heading, justify="left" if heading == "order" else "right")
        for order, features, multiplied, cost in (
            ("(A X) W", self.in_features, self.rows, self.aggregated_first),
            ("A (X W)", self.out_features, self.columns, self.mapped_first),
        ):
            mark = "* " if order == self.order else "  "
            table.add_row(mark + order, f"{features:,}", f"{multiplied:,}", f"{cost / 1e6:,.2f}")
        return render(
            f"{self.op}, {self.in_features} to {self.out_features} features ({self.dtype}) on {self.rows:,} x "
            f"{self.columns:,} with {self.edges:,} edges\n"
            f"order: {self.order}",
            "",
            table,
            f"M: millions of multiply-adds, or of what takes as long; A (X W) is taken where it costs under {MARGIN} "
            "of (A X) W",
        )


def explain_linear(
    op: str, graph: Graph, features: Width = 64, *, dtype="float32", backward: bool = False
) -> LinearOrder:
    """``gsb.explain`` of a linear map of an aggregation. backward: the same, since gradients go in the same order."""
    wide_in, wide_out = pair(features)
    kind = check_dtype(dtype)
    sizes = *graph.shape, graph.num_edges
    costs = order_costs(*sizes, wide_in, wide_out, kind.itemsize)
    order = "A (X W)" if maps_first(*sizes, wide_in, wide_out, kind.itemsize) else "(A X) W"
    return LinearOrder(op, wide_in, wide_out, type_name(kind), *sizes, *costs, order)
