"""In which order an aggregation and a linear map of it are made, and why: ``gsb.explain(graph, op="linear")``."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...compiler.own_schedules import OwnSchedule, in_words
from ...deferred import table
from ...frozen import dataclass
from ...runtime.text import render
from ...runtime.type_names import check_dtype, type_name
from ...structures.graph import Graph
from ..core.prepared import Width, pair

# Multiply-adds of a library's product that take as long as fetching one byte of a gathered row, and as one byte of rows
# that are read or written in order. docs/decisions/order-of-products.md has what they were fitted to.
FETCH_COST = 3.0
STREAM_COST = 4.0
# How much cheaper the other order must be than that which a program asks for.
MARGIN = 0.9


class Needed(NamedTuple):
    """Which gradients are asked for: of the features, the matrix, the edges' weights."""

    x: bool = False
    matrix: bool = False
    weight: bool = False


NOTHING = Needed()


def needed_gradients(x: Tensor, matrix: Tensor, *weights: Tensor | None) -> Needed:
    """The gradients that may be asked for of these tensors now."""
    if not torch.is_grad_enabled():
        return NOTHING
    weighted = any(each is not None and each.requires_grad for each in weights)
    return Needed(x.requires_grad, matrix.requires_grad, weighted)


def order_costs(
    rows: int,
    columns: int,
    edges: int,
    in_features: int,
    out_features: int,
    itemsize: int,
    needed: Needed = NOTHING,
) -> tuple[float, float]:
    """What ``(A X) W`` and ``A (X W)`` cost for A of shape (rows, columns), with the gradients that are needed, in
    multiply-adds or in what takes as long.

    A product multiplies a row for every row, or column, and reads and writes these. An aggregation fetches a row of X,
    or of X W, for each edge, and writes the sums. Gradients go the same way: the first order has no aggregation for
    that of W alone, since A X is kept; the second always has one.
    """
    x, matrix, weight = needed

    def product(multiplied: int) -> float:
        return multiplied * (in_features * out_features + STREAM_COST * itemsize * (in_features + out_features))

    def aggregation(features: int, into: int) -> float:
        return itemsize * features * (edges * FETCH_COST + into * STREAM_COST)

    def both(multiplied: int, products: int, features: int, again: bool) -> float:
        dots = edges * FETCH_COST * itemsize * features if weight else 0
        back = aggregation(features, columns) if again else 0
        return products * product(multiplied) + aggregation(features, rows) + back + dots

    aggregated_first = both(rows, 1 + matrix + (x or weight), in_features, x)
    return aggregated_first, both(columns, 1 + matrix + x, out_features, x or matrix)


def maps_first(*sizes_and_widths: int, needed: Needed = NOTHING) -> bool:
    """Whether ``A (X W)`` costs less than the ``(A X) W`` that is asked for, by `order_costs` of the same."""
    aggregated_first, mapped_first = order_costs(*sizes_and_widths, needed=needed)
    return mapped_first < MARGIN * aggregated_first


def sums_first(*sizes_and_widths: int, needed: Needed = NOTHING) -> bool:
    """Whether ``(A X) W`` costs less than the ``A (X W)`` that is asked for, by `order_costs` of the same."""
    aggregated_first, mapped_first = order_costs(*sizes_and_widths, needed=needed)
    return aggregated_first < MARGIN * mapped_first


ASSUMED = {"nothing": NOTHING, "X and W": Needed(x=True, matrix=True), "W alone": Needed(matrix=True)}
"""What gradients may be asked for: in inference, of a layer, of a first layer, whose features have none."""


@dataclass(frozen=True)
class LinearOrder:
    """The order of an aggregation and a linear map; ``str()`` is the text for people.

    op: the operator's name. gradients: one of ``ASSUMED``, of which the next three tell. aggregated_first,
    mapped_first: what either order costs, in multiply-adds, or in what takes as long. order: that which is taken,
    ``(A X) W`` or ``A (X W)``. costs: of all that is ``ASSUMED``, what either order costs. schedules: of
    users, which are in force.
    """

    op: str
    in_features: int
    out_features: int
    dtype: str
    rows: int
    columns: int
    edges: int
    gradients: str
    aggregated_first: float
    mapped_first: float
    order: str
    costs: dict[str, tuple[float, float]]
    schedules: tuple[OwnSchedule, ...] = ()

    def __str__(self) -> str:
        rows = table.Table(title="predicted, M (* is the order taken)", title_justify="left")
        for heading in ("gradients of", "(A X) W", "A (X W)"):
            rows.add_column(heading, justify="left" if heading == "gradients of" else "right")
        for gradients, costs in self.costs.items():
            taken = costs[1] < MARGIN * costs[0]
            rows.add_row(gradients, *(f"{'* ' * (taken is at)}{c / 1e6:,.2f}" for at, c in zip((False, True), costs)))
        return render(
            f"{self.op}, {self.in_features} to {self.out_features} features ({self.dtype}) on {self.rows:,} x "
            f"{self.columns:,} with {self.edges:,} edges\n"
            f"order: {self.order}, with the gradients of {self.gradients}",
            *in_words(self.schedules),
            "",
            rows,
            f"M: millions of multiply-adds, or of what takes as long, forward and backward; A (X W) is taken where it "
            f"costs under {MARGIN} of (A X) W. Layers that ask for A (X W) keep it unless (A X) W costs under {MARGIN} "
            "of it.",
        )


def explain_linear(
    op: str, graph: Graph, features: Width = 64, *, dtype="float32", backward: bool = False
) -> LinearOrder:
    """``gsb.explain`` of a linear map of an aggregation. backward: with the gradients of both."""
    wide_in, wide_out = pair(features)
    kind = check_dtype(dtype)
    sizes = *graph.shape, graph.num_edges
    costs = {each: order_costs(*sizes, wide_in, wide_out, kind.itemsize, needed) for each, needed in ASSUMED.items()}
    asked = "X and W" if backward else "nothing"
    order = "A (X W)" if maps_first(*sizes, wide_in, wide_out, kind.itemsize, needed=ASSUMED[asked]) else "(A X) W"
    return LinearOrder(op, wide_in, wide_out, type_name(kind), *sizes, asked, *costs[asked], order, costs)
