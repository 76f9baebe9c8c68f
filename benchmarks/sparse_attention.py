"""Sparse attention, and products on the blocks of its mask, against PyTorch: ``python -m benchmarks.sparse_attention``.

Bands as in Longformer, with and without a global token, the butterfly of Pixelated Butterfly, and causal attention, of
4,096 tokens and 12 heads of 64: forward, forward with the gradients to q, k and v, and the batched products alone
(SDDMM, SpMM). ``--masks`` has FlexAttention's cases as well: windows, documents and prefixes, and changed scores under
a causal mask (ALiBi, a soft cap, relative positions). Every cell runs all contenders on the same operands, checks their
answers against float64 and times them interleaved; peak memory, results included, is of a fresh process for each.
FlexAttention is compiled before, and what that takes is told apart.

``--flex`` measures these cases alone, of 4 heads at 1,024 and 4,096 tokens and one at 16,384, and decoding, within
``--budget`` seconds: what has not begun by then is left out. Compiled FlexAttention stands beside forward passes,
PyTorch's attention beside steps, and beside what it computes without a mask. At last it prints tables in Markdown.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Console

from benchmarks.masked import contenders, gpu, memory, page
from benchmarks.masked.contenders import ATTENTION, CONTENDERS, NOTES, OURS, PRODUCTS
from benchmarks.masked.problem import DECODE, DTYPES, FLEX, MASKS, OPS, Place, Problem
from benchmarks.support import cells, cli, machine, merging, report, roofline, summary
from benchmarks.support.gpu.device import device_parser
from benchmarks.support.reasons import duration
from benchmarks.support.timing import Rules, interleaved

LONG_CALL, HOPELESS = 0.5, 10.0
"""Seconds, and times what the fastest took: beyond both a first call is all that is timed."""
RULES = {"long_rounds": 3, "hopeless": 8.0, "slow": 8.0}
FLEX_PEERS = (OURS, "flex", "sdpa", "sdpa32", "plain", "plain32")
FLEX_HEADS = {1024: 4, 4096: 4, 16384: 1}
"""Heads by tokens: the longest sequences take no longer than others of more heads."""
FLEX_ORDER = ("forward", 4096), ("step", 4096), ("forward", 16384), ("forward", 1024), ("step", 1024), ("step", 16384)
FLEX_RULES = {**RULES, "min_rounds": 3, "long_rounds": 2, "long_s": 0.5}
"""Compiling takes most of the time that there is."""


def measure_cell(
    place: Place,
    names: Sequence[str],
    parts: Sequence[str],
    limits: roofline.Roofline,
    budget: float,
    threads: int,
    rules: dict = RULES,
) -> dict:
    """A cell as plain values. compile: seconds of the first call of each contender, which compiles."""
    problem = Problem(place)

    def called(name: str) -> contenders.Call:
        call = contenders.call_of(name, problem)
        call()  # compiles
        return call

    found = cells.answers(names if "time" in parts else (), called, problem.mismatch)
    timed = interleaved(found.calls, Rules(budget_s=budget, **rules), warm=rules is not FLEX_RULES)
    timings = {name: timing.to_dict() for name, timing in timed.items()}
    rated = cells.rate(str(place), timings, (OURS,), limits, problem.work(), wrong=found.wrong)
    able = [name for name in names if name not in found.unable]
    watched = ([OURS], replace(place, heads=page.WATCHED_HEADS)) if rules is FLEX_RULES else (able, place)
    peaks = memory.measure(*watched, threads) if "memory" in parts else {}
    return {
        "graph": place.mask_name,
        "op": place.op,
        "precision": place.precision,
        "features": place.width,
        "kind": "products" if place.op in PRODUCTS else place.op,
        "width": place.tokens,
        "pairs": problem.mask.num_pairs,
        **rated,
        "first_call": found.prepared,
        "unable": found.unable,
        "memory": peaks,
        "memory_ratio": summary.speedup(memory.compared(peaks), (OURS,)),
    }


def series(options: argparse.Namespace) -> cells.Series:
    """All that the options name; times in seconds, memory in bytes."""
    limits = roofline.by_type(options.threads, {name: DTYPES[name] for name in options.precisions})
    wanted = flex_places(options) if options.flex else places(options)
    share = options.budget / max(len(wanted), 1)
    end = time.monotonic() + options.budget

    def measure(place: Place) -> dict | None:
        if not options.flex:
            rest = limits[place.precision], share, options.threads
            return measure_cell(place, options.contenders, options.parts, *rest)
        if time.monotonic() > end:
            return None
        parts = ["time", "memory"] if is_watched(place) else ["time"]
        rest = limits[place.precision], share / 3, options.threads  # compiling and checking take more than half
        return measure_cell(place, flex_peers(place, options.contenders), parts, *rest, FLEX_RULES)

    def joined(earlier: dict, now: dict) -> dict:
        """A cell of which one part was measured now, and the other earlier."""
        if len(options.parts) > 1:
            return now
        first, second = (now, earlier) if options.parts == ["time"] else (earlier, now)
        return {**first, "memory": second["memory"], "memory_ratio": second["memory_ratio"]}

    head = {
        "machine": machine.describe(options.threads),
        "roofline": limits["float32"].to_dict(),
        "contenders": {name: NOTES[name] for name in options.contenders},
    }
    panels = "op", "precision", "graph"
    name = "flex_attention" if options.flex else "sparse_attention"
    return cells.Series(name, head, wanted, measure, summarise, line, show, panels, "mask", joined)


def places(options: argparse.Namespace) -> list[Place]:
    return [
        Place(mask, op, precision, tokens, options.heads, options.width, options.seed)
        for tokens in options.tokens
        for mask in options.masks
        for op in options.ops
        for precision in options.precisions
        if op in ATTENTION or mask not in FLEX
    ]


def flex_places(options: argparse.Namespace) -> list[Place]:
    """The cases of FlexAttention: masks, changed scores, no mask at all, and decoding. Those that matter come first."""
    rest = options.width, options.seed
    found = [
        Place(mask, op, precision, tokens, FLEX_HEADS[tokens], *rest)
        for op, tokens in FLEX_ORDER
        for precision in options.precisions
        for mask in ("causal", *FLEX)
        if op == "forward" or mask != "dense"
    ]
    decoding = [Place("dense", DECODE, precision, max(FLEX_HEADS), 32, *rest) for precision in options.precisions]
    return [*decoding, *found]


def flex_peers(place: Place, names: Sequence[str]) -> list[str]:
    """Who is measured beside us: compiling FlexAttention takes longer than all the rest, and masked attention of all
    pairs is many times slower than either of us.
    """
    if place.op == "forward" and place.mask_name not in ("causal", "dense"):
        names = [name for name in names if name in (OURS, "flex")]
    return [name for name in names if name != "flex" or place.mask_name != "dense" or place.op == DECODE]


def is_watched(place: Place) -> bool:
    """Whether memory is measured: how it grows with the number of tokens."""
    return (place.mask_name, place.op, place.precision) == ("alibi", "step", "float32")


def summarise(measured: Sequence[dict]) -> dict:
    """``summary.summarise``, with each operator in each type, and the mean of the ratios in memory."""
    named = [cell | {"what": f"{cell['kind']} in {cell['precision']}"} for cell in measured]
    return summary.summarise(named, ("what", "graph")) | {
        "memory": summary.mean_or_none(cell["memory_ratio"] for cell in measured)
    }


def line(cell: Mapping) -> str:
    """A cell in a line."""
    times = ", ".join(f"{name} {duration(timing['median'])}" for name, timing in cell["timings"].items())
    return (
        f"{cell['where']}: time {report.ratio(cell['speedup'])}, memory {report.ratio(cell['memory_ratio'])} ({times})"
    )


def show(results: Mapping, console: Console) -> None:
    """Times, memory, what compiling cost, and the summary."""
    report.print_head(results, console)
    names = [name for name in results["contenders"] if any(name in cell["timings"] for cell in results["cells"])]
    where = "mask", "tokens", "operator", "type"
    times = report.table("Milliseconds", where, (*names, "ratio", *report.ROOFLINE_HEADINGS))
    peaks = report.table("MiB beyond operands", where, (*names, "ratio"))
    for cell in results["cells"]:
        where = (cell["graph"], str(cell["width"]), cell["op"], cell["precision"])
        own = [report.median(cell, name) for name in names]
        times.add_row(*where, *own, report.ratio(cell["speedup"]), *report.roofline_columns(cell))
        needed = memory.compared(cell["memory"])
        shown = [f"{needed[name] / 2**20:.1f}" if name in needed else report.MISSING for name in names]
        peaks.add_row(*where, *shown, report.ratio(cell["memory_ratio"]))
    console.print(times)
    console.print(report.ROOFLINE_NOTE)
    if any(cell["memory"] for cell in results["cells"]):
        console.print(peaks)
    flex = [cell["first_call"]["flex"] for cell in results["cells"] if "flex" in cell["first_call"]]
    if flex:
        console.print(f"compiling FlexAttention and its first call took {min(flex):.0f} to {max(flex):.0f} s in a cell")
    report.print_summary(results["summary"], console)
    console.print(f"Geometric mean of the ratio in memory: {report.ratio(results['summary']['memory'])}")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=160.0, parents=[device_parser()])
    parser.add_argument("--masks", nargs="+", choices=(*MASKS, *FLEX), default=list(MASKS))
    parser.add_argument("--flex", action="store_true", help="the cases of FlexAttention alone, within the budget")
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS))
    parser.add_argument("--precisions", nargs="+", choices=tuple(DTYPES), default=list(DTYPES))
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--parts", nargs="+", choices=("time", "memory"), help="what to measure, by default both")
    parser.add_argument("--tokens", nargs="+", type=cli.positive_int, default=[4096])
    parser.add_argument("--heads", type=cli.positive_int, default=12)
    parser.add_argument("--width", type=cli.positive_int, default=64)
    cli.add_append(parser)
    options = parser.parse_args(argv)
    if options.flex:
        options.contenders = [name for name in options.contenders if name in FLEX_PEERS]
    if options.quick:
        options.tokens, options.heads, options.budget = [min(512, *options.tokens)], 2, min(options.budget, 8.0)
        options.contenders = [name for name in options.contenders if name != "flex"]  # compiling takes a minute
    # what starts processes takes longer than the rest
    options.parts = options.parts or (["time"] if options.quick else ["time", "memory"])
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``sparse_attention.json`` and ``.png``. 1 if an answer was wrong, else 0."""
    options = arguments(argv)
    console = cli.start(options)
    if options.device == "cuda":
        return gpu.main(options, console)
    status = cells.reported(series(options), options, console)
    if options.flex:
        written = options.out / "flex_attention.json"
        console.print(page.page(merging.read(written)["cells"]), markup=False, soft_wrap=True)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
