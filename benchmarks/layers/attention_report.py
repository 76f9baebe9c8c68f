"""Tables of the attention benchmark's report (plain values, times in seconds, memory in bytes)."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.layers.contenders import BACKEND, framework_of
from benchmarks.support import report


def show(results: dict, console: Console) -> None:
    """Every cell with its time and its memory, what the times leave out, and the summary."""
    report.print_head(results, console)
    for graph in results["graphs"]:
        chosen = [cell for cell in results["cells"] if cell["graph"] == graph["name"]]
        for make in (_time_table, _memory_table, _first_call_table):
            console.print(make(graph, chosen, results["contenders"]))
    console.print(
        f"A name with {BACKEND} is that framework's own layer with the backend. ratio: best peer over the "
        "best of ours, above 1 we are better; then each framework over itself with the backend. ~: fewer "
        "than 5 samples. DGL's transformer layer has one dense product, PyG's has three. " + report.ROOFLINE_NOTE
    )
    report.print_summary(results["summary"], console)
    summary = results["summary"]
    console.print(f"[bold]Geometric mean of the ratio in peak memory: {report.ratio(summary['memory'])}[/]")
    for what, key in (("time", "frameworks"), ("peak memory", "memory_frameworks")):
        parts = ", ".join(f"{name} {report.ratio(value)}" for name, value in summary[key].items())
        console.print(f"  a framework over itself with the backend, {what}: {parts}")


def times(cell: dict) -> str:
    """Every contender's median, in words."""
    return ", ".join(f"{name} {report.duration(timing['median'])}" for name, timing in cell["timings"].items())


def _frameworks(names: list[str]) -> list[str]:
    return list(dict.fromkeys(map(framework_of, names)))


def _ratio_headings(names: list[str]) -> list[str]:
    return [f"{framework} ratio" for framework in _frameworks(names)]


def _time_table(graph: dict, cells: list[dict], names: list[str]) -> Table:
    table = report.table(
        f"{graph['name']} ({graph['origin']}): {graph['rows']:,} nodes, {graph['edges']:,} edges, "
        f"in-degree up to {graph['max_in_degree']:,} - a training step, median in ms",
        ("layer",),
        ("heads", *names, "ratio", *_ratio_headings(names), *report.ROOFLINE_HEADINGS),
    )
    for cell in cells:
        table.add_row(
            cell["layer"],
            str(cell["heads"]),
            *(report.median(cell, name) for name in names),
            report.ratio(cell["speedup"]),
            *_ratios(cell["ratios"], names),
            *report.roofline_columns(cell),
        )
    return table


def _memory_table(graph: dict, cells: list[dict], names: list[str]) -> Table:
    table = report.table(
        f"{graph['name']} - peak memory of a training step above what is resident before it, in MiB "
        "(in brackets: what the first step leaves resident, formats and kernels)",
        ("layer",),
        ("heads", *names, "ratio", *_ratio_headings(names)),
    )
    for cell in cells:
        table.add_row(
            cell["layer"],
            str(cell["heads"]),
            *(_memory(cell["memory"][name]) for name in names),
            report.ratio(cell["memory_ratio"]),
            *_ratios(cell["memory_ratios"], names),
        )
    return table


def _first_call_table(graph: dict, cells: list[dict], names: list[str]) -> Table:
    table = report.table(
        f"{graph['name']} - the first step beyond a warm one, in ms: formats, and kernels that are "
        "compiled or read from the disk (in brackets: the first step after the backend was switched "
        "off and on, formats alone)",
        ("layer",),
        ("heads", *names),
    )
    for cell in cells:
        table.add_row(cell["layer"], str(cell["heads"]), *(_first(cell["timings"].get(name)) for name in names))
    return table


def _ratios(ratios: dict, names: list[str]) -> list[str]:
    return [report.ratio(ratios[framework]) for framework in _frameworks(names)]


def _memory(entry: dict) -> str:
    return entry["error"] if "error" in entry else f"{entry['step'] / 2**20:.0f} ({entry['held'] / 2**20:.0f})"


def _first(timing: dict | None) -> str:
    if timing is None:
        return report.MISSING
    first, again = (max(0.0, timing[key] - timing["median"]) for key in ("first_call", "opening"))
    return f"{report.milliseconds(first)} ({report.milliseconds(again)})"
