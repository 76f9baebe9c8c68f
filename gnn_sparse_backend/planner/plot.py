"""Pictures of a plan's reasons: the degrees of a structure in their buckets, and its candidates against the
roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

from .plan import Plan


def draw(
    path: Path,
    title: str,
    degrees: np.ndarray,
    candidates: Sequence[tuple[Plan, float | None, float | None]],
    chosen: Plan,
    bound: float,
) -> Path:
    """Write a PNG. Returns its path.

    degrees: (rows,) non-zeros of each row. candidates: plans with predicted and measured seconds, where there are any.
    bound: seconds below which no plan can be. Raises ImportError without matplotlib.
    """
    try:
        import matplotlib
    except ImportError:
        raise ImportError("drawing needs matplotlib: pip install matplotlib") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(13, max(4.0, 1.2 + 0.5 * len(candidates))), width_ratios=(1, 1.4)
    )
    _draw_degrees(left, degrees)
    _draw_candidates(right, candidates, chosen, bound)
    figure.suptitle(title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def buckets(degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(widths, rows, non-zeros) of the buckets of hyb (SparseTIR, section 4.2.1): bucket k holds the rows of up to 2^k
    non-zeros that no smaller one holds; rows without non-zeros are in none.
    """
    filled = degrees[degrees > 0].astype(np.int64)
    which = np.ceil(np.log2(filled)).astype(np.int64) if len(filled) else filled
    count = int(which.max(initial=0)) + 1
    return (
        1 << np.arange(count),
        np.bincount(which, minlength=count),
        np.bincount(which, weights=filled, minlength=count).astype(np.int64),
    )


def _draw_degrees(panel: Axes, degrees: np.ndarray) -> None:
    widths, rows, nonzeros = buckets(degrees)
    places = np.arange(len(widths))
    panel.bar(places - 0.2, rows / max(1, len(degrees)), 0.4, label="rows")
    panel.bar(places + 0.2, nonzeros / max(1, nonzeros.sum()), 0.4, label="non-zeros")
    panel.set_xticks(places, [f"{width:,}" for width in widths], rotation=60)
    empty = int((degrees == 0).sum())
    panel.set(
        xlabel="bucket: rows of up to so many non-zeros",
        ylabel="share",
        title=f"degrees ({empty:,} rows without non-zeros)" if empty else "degrees",
    )
    panel.legend()


def _draw_candidates(
    panel: Axes, candidates: Sequence[tuple[Plan, float | None, float | None]], chosen: Plan, bound: float
) -> None:
    names = []
    for place, (plan, predicted, measured) in enumerate(candidates):
        names.append(("▶ " if plan == chosen else "") + str(plan))
        for offset, seconds, colour in ((-0.2, predicted, "tab:gray"), (0.2, measured, "tab:blue")):
            if seconds is not None:
                panel.barh(place + offset, seconds * 1e6, 0.4, color=colour)
    labels = {"predicted": "tab:gray", "measured": "tab:blue"}
    handles = [panel.barh([0], [0], color=colour, label=label) for label, colour in labels.items()]
    line = panel.axvline(bound * 1e6, color="black", linestyle="--", label="roofline: the bytes that must move")
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.set(xlabel="microseconds a call", title="candidates")
    panel.legend(handles=[*handles, line], fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3)
