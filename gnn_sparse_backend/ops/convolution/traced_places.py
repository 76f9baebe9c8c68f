"""Sites of several tensors together, and those around points, in programs that are traced: found when they run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...structures.coordinates import around, corners_of, united
from ...structures.coordinates.around import MODES
from ...structures.coordinates.written import Written, sites_at
from ..core.operator import Operator
from ..core.traced import Traced
from .traced_sites import unknown_size


def _united(nothing: Any, operands: Any, attributes: tuple) -> tuple[Tensor, Tensor]:
    batches, how = attributes
    first, *others = (sites_at(rows, batches, how) for rows in operands)
    sites, places = united(first, others)
    return sites.rows.to(operands[0].dtype, copy=True), torch.cat([torch.arange(len(first.rows)), *places])


def _like_united(arguments: tuple, operands: Any, attributes: Any, transposed: bool) -> tuple[Tensor, Tensor]:
    first = operands[0]
    count = sum(rows.shape[0] for rows in operands)
    return first.new_empty((unknown_size(first), first.shape[1])), first.new_empty(count, dtype=torch.int64)


UNITED = Operator(
    "united_sites",
    _united,
    operands="Tensor[] rows",
    attributes="SymInt batches, int[] how",
    results="(Tensor, Tensor)",
    like=_like_united,
)
"""(sites, 1 + D) the rows of all sites, and (rows of all tensors,) which of them each is. Attributes: batches, how."""


def _around(nothing: Any, operands: Any, attributes: tuple) -> tuple[Tensor, Tensor]:
    (rows, points), (batches, mode, how) = operands, attributes
    return around(sites_at(rows, batches, how), points, MODES[mode])


def _like_around(arguments: tuple, operands: Any, attributes: Any, transposed: bool) -> tuple[Tensor, Tensor]:
    rows, points = operands
    shape = points.shape[0], corners_of(rows.shape[1] - 1, MODES[attributes[1]])
    return points.new_empty(shape, dtype=torch.int64), points.new_empty(shape, dtype=torch.float64)


AROUND = Operator(
    "sites_around",
    _around,
    operands="Tensor rows, Tensor points",
    attributes="SymInt batches, int mode, int[] how",
    results="(Tensor, Tensor)",
    like=_like_around,
)
"""`around`, as an operator. Attributes: batches, the number of a mode, how."""


def traced_union(rows: Sequence[Tensor], batches: Any, how: Written) -> tuple[Tensor, Sequence[Tensor]]:
    """The rows of all sites of tensors on one grid, and for each tensor which of them its own are."""
    found, places = UNITED(Traced(()), tuple(rows), (batches, how))
    return found, places.split([each.shape[0] for each in rows])


def traced_around(rows: Tensor, batches: Any, how: Written, points: Tensor, mode: str) -> tuple[Tensor, Tensor]:
    """`around` sites that follow from ``rows`` as it is written."""
    found: tuple[Tensor, Tensor] = AROUND(Traced(()), (rows, points), (batches, MODES.index(mode), how))
    return found
