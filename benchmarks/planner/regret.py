"""How far what was chosen is from the best that there is, over many cells."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np


def summarise(cells: Sequence[Mapping]) -> dict:
    """Regret of the plan, of the rules alone, and of the single kernel that is best over all cells and of the best of
    each operator, with the worst cells. Cells in which not every plan was measured are counted, and left out: their
    regret would look too small.

    Means are arithmetic, of planned over best minus one; None without cells to take them of. An empty dict without any
    cell.
    """
    if not cells:
        return {}
    whole = [cell for cell in cells if cell["complete"]]
    regrets = [cell["regret"] for cell in whole]
    rules = [cell["rules_seconds"] / cell["best_seconds"] - 1 for cell in whole if cell["rules_seconds"]]
    worst = sorted(whole, key=lambda cell: -cell["regret"])[:5]
    return {
        "cells": len(whole),
        "left_out": len(cells) - len(whole),
        "mean_regret": statistics.fmean(regrets) if regrets else None,
        "worst_regret": max(regrets, default=None),
        "mean_regret_of_rules": statistics.fmean(rules) if rules else None,
        "worst_regret_of_rules": max(rules, default=None),
        "single": single_best(whole),
        "single_by_op": {
            op: single_best([cell for cell in whole if cell["op"] == op])
            for op in dict.fromkeys(cell["op"] for cell in whole)
        },
        "worst": [{key: cell[key] for key in ("graph", "op", "width", "regret", "planned", "best")} for cell in worst],
    }


def single_best(cells: Sequence[Mapping]) -> dict | None:
    """The one kernel whose times have the least geometric mean, with the number of cells that it was compared in and
    its regret there.

    Of the kernels that were measured in more than half of the cells, over the cells in which all of these were. None
    without any.
    """
    measured = Counter(name for cell in cells for name in cell["single_seconds"])
    names = sorted(name for name, count in measured.items() if 2 * count > len(cells))
    compared = [cell for cell in cells if names and all(name in cell["single_seconds"] for name in names)]
    if not compared:
        return None
    best = min(names, key=lambda name: sum(np.log(cell["single_seconds"][name]) for cell in compared))
    regrets = [cell["single_seconds"][best] / cell["best_seconds"] - 1 for cell in compared]
    return {
        "kernel": best,
        "cells": len(compared),
        "mean_regret": statistics.fmean(regrets),
        "worst_regret": max(regrets),
    }
