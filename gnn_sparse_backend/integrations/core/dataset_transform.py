"""What the dataset transforms for DGL and PyG share."""

from __future__ import annotations

import time
from collections.abc import Iterable

from ...structures.reordering.reorder import check_method
from ...tuning.precompile import seconds_of
from ...tuning.precompile_operators import requested, settled
from ...tuning.report import Report
from .planning import precompile


class Budgeted:
    """Precompiles each graph it is given, until ``budget`` is used up over all of them; then it does nothing.

    Arguments as those of ``precompile``; names and widths are looked at when it is made. reports: of the graphs so far.
    """

    def __init__(self, features=64, ops: str | Iterable[str] | None = None, budget: str | float = "30s", **options):
        self.features = settled(features)
        self.ops = ops if ops is None or isinstance(ops, str) else tuple(ops)
        requested(self.ops, self.features)
        self.left = seconds_of(budget)
        self.options = {"progress": False, **options}
        self.reports: list[Report] = []

    def see(self, data) -> None:
        """Spend on ``data`` what is left."""
        if self.left <= 0:
            return
        begin = time.perf_counter()
        self.reports.append(precompile(data, self.features, self.ops, self.left, **self.options))
        self.left -= time.perf_counter() - begin


class Reordering:
    """Puts the nodes of each graph it is given in another order.

    method: as of ``gsb.reorder``; looked at when it is made.
    """

    def __init__(self, method: str = "rcm"):
        check_method(method)
        self.method = method

    def __repr__(self) -> str:
        """The text by which PyG tells whether a data set on the disk was made by this ``pre_transform``."""
        return f"{type(self).__name__}({self.method!r})"
