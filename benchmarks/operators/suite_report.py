"""Tables of the report of an operator's benchmark (plain values, times in seconds)."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.support import report
from benchmarks.support.report import MISSING
from benchmarks.support.summary import OURS


def show(results: dict, console: Console) -> None:
    """Every cell, what it means, and the preparation that the times leave out."""
    report.print_head(results, console)
    for name, note in results["contenders"].items():
        console.print(f"  {name}: {note}")
    for graph in results["graphs"]:
        for mode in results["summary"]["by_mode"]:
            cells = [c for c in results["cells"] if (c["graph"], c["mode"]) == (graph["name"], mode)]
            if cells:
                console.print(_cell_table(graph, mode, cells, results["contenders"]))
    console.print(
        "Medians in ms. ratio: best peer over ours, above 1 we are faster. ~: fewer than 5 samples, since "
        f"far slower than the fastest. {report.ROOFLINE_NOTE} Fresh outputs are part of every time."
    )
    reasons = {(name, reason) for cell in results["cells"] for name, reason in cell["unable"].items()}
    console.print(f"{MISSING}: " + "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons)))
    console.print(_preparation_table(results))
    console.print(_per_call_table(results))
    report.print_summary(results["summary"], console)
    _print_small_and_slow(results["summary"], console)


def _cell_table(graph: dict, mode: str, cells: list[dict], names: dict) -> Table:
    title = (
        f"{graph['name']} ({graph['origin']}): {graph['rows']:,} rows, {graph['edges']:,} edges, "
        f"in-degree up to {graph['max_in_degree']:,} – {mode}"
    )
    table = report.table(title, (), ("F", *names, "best peer", "ratio", *report.ROOFLINE_HEADINGS))
    table.columns[1 + list(names).index(OURS)].style = "bold"
    for cell in cells:
        table.add_row(
            str(cell["features"]),
            *(report.median(cell, name) for name in names),
            cell["best_peer"] or MISSING,
            report.ratio(cell["speedup"]),
            *report.roofline_columns(cell),
        )
    return table


def _preparation_table(results: dict) -> Table:
    table = report.table(
        "Preparation once per graph, in ms, outside the times above; in brackets what the first call "
        "of the first cell took beyond a later one (compilation, lazily built formats)",
        ("graph",),
        results["contenders"],
    )
    for graph, seconds in results["preparation"].items():
        first = next(c for c in results["cells"] if c["graph"] == graph)["timings"]
        extra = {n: max(0.0, t["first_call"] - t["median"]) for n, t in first.items()}
        table.add_row(
            graph, *(f"{seconds[name] * 1e3:.1f} ({extra.get(name, 0.0) * 1e3:.1f})" for name in results["contenders"])
        )
    return table


def _per_call_table(results: dict) -> Table:
    table = report.table(
        "A call on a graph of one edge, F = 32, in microseconds: the cost of calling alone",
        ("mode",),
        results["contenders"],
    )
    for mode, seconds in results["per_call"].items():
        table.add_row(mode, *(f"{seconds[n] * 1e6:.1f}" if n in seconds else MISSING for n in results["contenders"]))
    return table


def _print_small_and_slow(summary: dict, console: Console) -> None:
    threshold = summary["small_graph_edges"]
    console.print(f"Cells of more than {threshold:,} edges where the best peer is faster: {len(summary['slow'])}")
    for cell in summary["slow"]:
        console.print(f"  {cell['where']}: {cell['speedup']:.2f}")
    if summary["small"]:
        console.print(f"Cells of at most {threshold:,} edges, our microseconds per call beyond the best peer's:")
        for cell in summary["small"]:
            console.print(
                f"  {cell['where']}: {cell['difference'] * 1e6:+.1f} "
                f"(ours {cell['ours'] * 1e6:.1f}, {cell['best_peer']} {cell['theirs'] * 1e6:.1f})"
            )
