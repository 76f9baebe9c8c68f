"""Tables of the RGCN benchmark's report (plain values, times in seconds, memory in bytes)."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.layers.contenders import BACKEND
from benchmarks.layers.rgcn.models import NOTES
from benchmarks.layers.rgcn.orders import regret
from benchmarks.support import report
from benchmarks.support.reasons import duration


def line(cell: dict) -> str:
    """A cell in a line."""
    times = ", ".join(f"{name} {duration(timing['median'])}" for name, timing in cell["timings"].items())
    return (
        f"{cell['where']}: time {report.ratio(cell['speedup'])}, peak memory {report.ratio(cell['memory_ratio'])}, "
        f"regret {report.percent(cell['orders']['regret'])} ({times})"
    )


def show(results: dict, console: Console) -> None:
    """Every cell with its time and its memory, the orders of the product, and the summary."""
    report.print_head(results, console)
    names = results["contenders"]
    for graph in results["graphs"]:
        chosen = [cell for cell in results["cells"] if cell["graph"] == graph["name"]]
        for table in (
            _times(graph, chosen, names),
            _memory(graph, chosen, names),
            _first(graph, chosen, names),
            _orders(graph, chosen),
        ):
            console.print(table)
        for name, reason in {name: reason for cell in chosen for name, reason in cell["unable"].items()}.items():
            console.print(f"  {name}: {reason}")
    console.print(
        "; ".join(f"{name}: {note}" for name, note in NOTES.items())
        + f"; {BACKEND}: the same with the backend. ratio: "
        "best peer over the best of ours, above 1 we are better. ~: fewer than 5 samples. HeteroGraphConv has one "
        "node type here. " + report.ROOFLINE_NOTE
    )
    summary = results["summary"]
    report.print_summary(summary, console)
    for mode, found in summary["modes"].items():
        parts = (
            f"{what} {report.ratio(found[key]['mean'])} (least {report.ratio(found[key]['least'])})"
            for what, key in (("time", "speedup"), ("peak memory", "memory_ratio"))
        )
        console.print(f"[bold]{mode}: geometric mean of the ratio in {', in '.join(parts)}[/]")
    console.print(
        f"Regret of the planner's order: mean {report.percent(summary['regret'])}, worst "
        f"{report.percent(summary['worst_regret'])}"
    )


def _times(graph: dict, cells: list[dict], names: list[str]) -> Table:
    pairs = (
        f"{graph['destination_pairs']:,} (destination, relation) and {graph['source_pairs']:,} (source, relation) pairs"
    )
    table = report.table(
        f"{graph['name']} ({graph['origin']}): {graph['nodes']:,} nodes, {graph['edges']:,} edges, "
        f"{graph['relations']} relations, {pairs} - median in ms",
        ("mode",),
        ("F", *names, "ratio", *report.ROOFLINE_HEADINGS),
    )
    for cell in cells:
        table.add_row(
            cell["mode"],
            str(cell["features"]),
            *(report.median(cell, name) for name in names),
            report.ratio(cell["speedup"]),
            *report.roofline_columns(cell),
        )
    return table


def _memory(graph: dict, cells: list[dict], names: list[str]) -> Table:
    table = report.table(
        f"{graph['name']} - peak memory beyond what is resident before and the results, in MiB (in brackets: "
        "what the first call leaves resident)",
        ("mode",),
        ("F", *names, "ratio"),
    )
    for cell in cells:
        entries = (cell["memory"].get(name, {}) for name in names)
        table.add_row(
            cell["mode"],
            str(cell["features"]),
            *(
                f"{entry['step'] / 2**20:.1f} ({entry['held'] / 2**20:.0f})" if "step" in entry else report.MISSING
                for entry in entries
            ),
            report.ratio(cell["memory_ratio"]),
        )
    return table


def _first(graph: dict, cells: list[dict], names: list[str]) -> Table:
    table = report.table(
        f"{graph['name']} - the first call beyond a warm one, in ms: formats, and kernels that are compiled or "
        "read from the disk (in brackets: the first after the backend was switched off and on)",
        ("mode",),
        ("F", *names),
    )
    for cell in cells:
        entries = []
        for timing in map(cell["timings"].get, names):
            entries.append(
                report.MISSING
                if timing is None
                else " ".join(
                    text.format(report.milliseconds(max(0.0, timing[key] - timing["median"])))
                    for text, key in (("{}", "first_call"), ("({})", "opening"))
                )
            )
        table.add_row(cell["mode"], str(cell["features"]), *entries)
    return table


def _orders(graph: dict, cells: list[dict]) -> Table:
    """One product of a layer and its gradients, by the order of operations."""
    # a step has the product as well, and its gradients
    last = sorted(cells, key=lambda cell: (cell["features"], cell["mode"] == "step"))
    by_width = {cell["features"]: cell["orders"]["seconds"] for cell in last}
    orders = list(dict.fromkeys(order for found in by_width.values() for times in found.values() for order in times))
    table = report.table(
        f"{graph['name']} - one product and its gradients by the order of operations, in ms",
        (),
        ("F", "of", *orders, "regret"),
    )
    for width, found in by_width.items():
        for product, times in found.items():
            table.add_row(
                str(width),
                product,
                *(report.milliseconds(times[order]) if order in times else "" for order in orders),
                report.percent(regret({product: times})),
            )
    return table
