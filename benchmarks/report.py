"""Tables and pictures of the SpMM benchmark's report (plain values, times in seconds)."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.roofline import Roofline
from benchmarks.summary import OURS

MISSING = "–"


def roofline_values(limits: Roofline) -> dict:
    """The measured limits as plain values: bytes per second, operations per second."""
    return {"threads": limits.threads, "stream_bytes_per_s": limits.stream, "gather_bytes_per_s": limits.gather,
            "gemm_flops_per_s": limits.flops,
            "copy_bytes_per_s": [{"working_set": size, "rate": rate} for size, rate in limits.copy]}


def print_machine(description: dict, console: Console) -> None:
    """What the numbers were measured on, and a warning if it was busy."""
    console.print(machine.one_line(description))
    if (warning := machine.busy(description)) is not None:
        console.print(f"[yellow]{warning}[/]")


def print_spmm(report: dict, console: Console) -> None:
    """Every cell, what it means, and the preparation that the times leave out."""
    print_machine(report["machine"], console)
    limits = report["roofline"]
    console.print(f"measured limits: copy {limits['stream_bytes_per_s'] / 1e9:.1f} GB/s beyond the caches, gather of "
                  f"512-byte rows {limits['gather_bytes_per_s'] / 1e9:.1f} GB/s, float32 GEMM "
                  f"{limits['gemm_flops_per_s'] / 1e9:.0f} GFLOP/s")
    for name, note in report["contenders"].items():
        console.print(f"  {name}: {note}")
    for graph in report["graphs"]:
        for mode in report["summary"]["by_mode"]:
            cells = [c for c in report["cells"] if (c["graph"], c["mode"]) == (graph["name"], mode)]
            if cells:
                console.print(_cell_table(graph, mode, cells, report["contenders"]))
    console.print("Medians in ms. ratio: best peer over ours, above 1 we are faster. ~: fewer than 5 samples, since far "
                  "slower than the fastest. compulsory, gather: the bound that the measured bandwidth sets, over our "
                  "time; caches can push gather above 100 %. Fresh outputs are part of every contender's time.")
    reasons = {(name, reason) for cell in report["cells"] for name, reason in cell["unable"].items()}
    console.print(f"{MISSING}: " + "; ".join(f"{name}: {reason}" for name, reason in sorted(reasons)))
    console.print(_preparation_table(report))
    console.print(_per_call_table(report))
    _print_summary(report["summary"], console)


def _cell_table(graph: dict, mode: str, cells: list[dict], names: dict) -> Table:
    table = Table(title=f"{graph['name']} ({graph['origin']}): {graph['rows']:,} rows, {graph['edges']:,} edges, "
                        f"in-degree up to {graph['max_in_degree']:,} – {mode}", title_justify="left")
    table.add_column("F", justify="right")
    for name in names:
        table.add_column(name, justify="right", style="bold" if name == OURS else None)
    table.add_column("best peer")
    for heading in ("ratio", "compulsory", "gather"):
        table.add_column(heading, justify="right")
    for cell in cells:
        table.add_row(str(cell["features"]), *(_median(cell, name) for name in names), cell["best_peer"] or MISSING,
                      _ratio(cell["speedup"]), _percent(cell["roofline_compulsory"]), _percent(cell["roofline_gather"]))
    return table


def _median(cell: dict, name: str) -> str:
    if name in cell["timings"]:
        timing = cell["timings"][name]
        return f"{'~' if timing['samples'] < 5 else ''}{_milliseconds(timing['median'])}"
    return "[red]wrong[/]" if name in cell["wrong"] else MISSING


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def _ratio(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"[{'green' if value >= 1 else 'red'}]{value:.2f}[/]"


def _percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f} %"


def _preparation_table(report: dict) -> Table:
    table = Table(title="Preparation once per graph, in ms, outside the times above; in brackets what the first call of "
                        "the first cell took beyond a later one (compilation, lazily built formats)", title_justify="left")
    table.add_column("graph")
    for name in report["contenders"]:
        table.add_column(name, justify="right")
    for graph, seconds in report["preparation"].items():
        first = next(c for c in report["cells"] if c["graph"] == graph)["timings"]
        extra = {n: max(0.0, t["first_call"] - t["median"]) for n, t in first.items()}
        table.add_row(graph, *(f"{seconds[name] * 1e3:.1f} ({extra.get(name, 0.0) * 1e3:.1f})" for name in report["contenders"]))
    return table


def _per_call_table(report: dict) -> Table:
    table = Table(title="A call on a graph of one edge, F = 32, in microseconds: the cost of calling alone",
                  title_justify="left")
    table.add_column("mode")
    for name in report["contenders"]:
        table.add_column(name, justify="right")
    for mode, seconds in report["per_call"].items():
        table.add_row(mode, *(f"{seconds[name] * 1e6:.1f}" if name in seconds else MISSING for name in report["contenders"]))
    return table


def _print_summary(summary: dict, console: Console) -> None:
    console.print(f"[bold]Geometric mean of the ratio to the best peer over {summary['cells']} cells: "
                  f"{_ratio(summary['geometric_mean'])}[/]")
    for heading in ("by_mode", "by_graph", "by_features"):
        parts = ", ".join(f"{name} {_ratio(value)}" for name, value in summary[heading].items())
        console.print(f"  {heading.replace('_', ' ')}: {parts}")
    table = Table(title="The worst cells", title_justify="left")
    for heading in ("graph", "mode", "F", "ours, ms", "best peer, ms", "peer", "ratio"):
        table.add_column(heading, justify="left" if heading in ("graph", "mode", "peer") else "right")
    for cell in summary["worst"]:
        table.add_row(cell["graph"], cell["mode"], str(cell["features"]), _milliseconds(cell["ours"]),
                      _milliseconds(cell["theirs"]), cell["best_peer"], _ratio(cell["speedup"]))
    console.print(table)
    threshold = summary["small_graph_edges"]
    console.print(f"Cells of more than {threshold:,} edges under 0.9 of the best peer: {len(summary['slow'])}")
    for cell in summary["slow"]:
        console.print(f"  {cell['graph']}, F = {cell['features']}, {cell['mode']}: {cell['speedup']:.2f}")
    if summary["small"]:
        console.print(f"Cells of at most {threshold:,} edges, our microseconds per call beyond the best peer's:")
        for cell in summary["small"]:
            console.print(f"  {cell['graph']}, F = {cell['features']}, {cell['mode']}: {cell['difference'] * 1e6:+.1f} "
                          f"(ours {cell['ours'] * 1e6:.1f}, {cell['best_peer']} {cell['theirs'] * 1e6:.1f})")
    for cell in summary["wrong"]:
        console.print(f"[red]WRONG: {cell['graph']}, F = {cell['features']}, {cell['mode']}: {cell['reason']}[/]")


def draw_spmm(report: dict, path: Path) -> Path:
    """One panel per mode: the ratio to the best peer over the width, a line per graph. Returns the path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    modes = list(report["summary"]["by_mode"])
    figure, panels = pyplot.subplots(1, len(modes), figsize=(4.2 * len(modes), 4), sharey=True, squeeze=False)
    for panel, mode in zip(panels[0], modes):
        for graph in report["graphs"]:
            points = [(c["features"], c["speedup"]) for c in report["cells"]
                      if (c["graph"], c["mode"]) == (graph["name"], mode) and c["speedup"] is not None]
            if points:
                panel.plot(*zip(*points), marker="o", label=graph["name"])
        panel.axhline(1, color="black", linewidth=1)
        panel.set(xscale="log", yscale="log", xlabel="features", title=mode)
        panel.set_xticks(sorted({c["features"] for c in report["cells"]}), minor=False)
        panel.xaxis.set_major_formatter("{x:.0f}")
        panel.xaxis.set_minor_formatter("")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
        panel.grid(alpha=0.3, which="both")
    panels[0][0].set_ylabel("best peer's time / ours")
    panels[0][0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
