"""The tables of a results page in Markdown, of what ``python -m benchmarks.sparse_attention --flex`` has recorded:
``python -m benchmarks.masked.page DIRECTORY/flex_attention.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.masked import memory
from benchmarks.masked.contenders import OURS
from benchmarks.masked.problem import DECODE
from benchmarks.paper.sheets import Sheet
from benchmarks.support.report import MISSING

PEERS = "flex", "sdpa", "plain", "sdpa32", "plain32"
WATCHED_HEADS = 4
"""Heads of the cells of which memory is measured, whatever the number of tokens is."""
ASKED = {("forward", "float32"): ("flex", 1.25), ("forward", "bfloat16"): ("flex", 2.5)}
"""The peer and the ratio that a forward pass with a mask or a function of scores is asked for; a step is asked for
`ASKED_OF_STEPS` over the best peer, a forward pass of all pairs for `ASKED_OF_DENSE` of ``sdpa``.
"""
ASKED_OF_STEPS, ASKED_OF_DENSE = 2.5, 0.9


def page(cells: Sequence[Mapping]) -> str:
    """A table of the cells of each operator and type, in the order of cases and tokens, and one of memory."""
    sheets = []
    for op, precision in dict.fromkeys((cell["op"], cell["precision"]) for cell in cells):
        rows = [cell for cell in cells if (cell["op"], cell["precision"]) == (op, precision)]
        sheets.append(_times(f"{'Decoding' if op == DECODE else op.capitalize()}, {precision}", rows))
    watched = [cell for cell in cells if cell.get("memory")]
    if watched:
        sheets.append(_memory(f"Peak memory of {WATCHED_HEADS} heads, beyond operands", watched))
    return "\n".join(sheet.markdown() for sheet in sheets)


def asked(cell: Mapping) -> float | None:
    """How many times what is asked for a cell has; None where nothing is, or a peer was not measured."""
    name, op = cell["graph"], cell["op"]
    if op == DECODE:
        return None
    if op == "step":
        return None if cell["speedup"] is None else cell["speedup"] / ASKED_OF_STEPS
    peer, ratio = ("sdpa", ASKED_OF_DENSE) if name == "dense" else ASKED[op, cell["precision"]]
    found = _over(cell, peer)
    return None if found is None else found / ratio


def _over(cell: Mapping, peer: str) -> float | None:
    medians = {name: timing["median"] for name, timing in cell["timings"].items()}
    return medians[peer] / medians[OURS] if {peer, OURS} <= set(medians) else None


def _times(title: str, cells: Sequence[Mapping]) -> Sheet:
    peers = [name for name in PEERS if any(name in cell["timings"] for cell in cells)]
    heads = ["case", "tokens", OURS, *peers, *(f"{peer} / {OURS}" for peer in peers), "of what is asked"]
    order = list(dict.fromkeys(cell["graph"] for cell in cells))
    rows = []
    for cell in sorted(cells, key=lambda cell: (order.index(cell["graph"]), cell["width"])):
        milliseconds = [cell["timings"].get(name, {}).get("median") for name in (OURS, *peers)]
        shown = [MISSING if x is None else _digits(1e3 * x) for x in milliseconds]
        ratios = [*(_over(cell, peer) for peer in peers), asked(cell)]
        shown += [MISSING if x is None else f"{x:.2f}" for x in ratios]
        rows.append([cell["graph"], f"{cell['width']:,}", *shown])
    return Sheet(title, heads, rows)


def _memory(title: str, cells: Sequence[Mapping]) -> Sheet:
    rows = []
    for cell in sorted(cells, key=lambda cell: cell["width"]):
        needed = memory.compared(cell["memory"]).get(OURS)
        shown = [f"{needed / 2**20:.1f}", f"{needed / cell['width']:,.0f}"] if needed else [MISSING, MISSING]
        rows.append([cell["graph"], cell["op"], cell["precision"], f"{cell['width']:,}", *shown])
    return Sheet(title, ("case", "operator", "type", "tokens", "MiB", "bytes for each token"), rows, left=3)


def _digits(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())["cells"]))
