"""Tables and pictures of ``benchmarks.planner.__main__``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.support import machine, report


def show(results: Mapping, console) -> None:
    """A row per cell, then the regrets, then the growth."""
    console.print(machine.one_line(results["machine"]))
    if (warning := machine.busy(results["machine"])) is not None:
        console.print(f"[yellow]{warning}[/]")
    table = report.table(
        "Planned and best plan, milliseconds a call",
        ("graph", "operator"),
        ("width", "planned", "predicted", "rules", "best", "single", "regret", "plan", "best plan"),
    )
    summary = results["summary"]
    single = (summary.get("single") or {}).get("kernel")
    for cell in results["cells"]:
        table.add_row(
            cell["graph"],
            cell["op"],
            str(cell["width"]),
            *(report.milliseconds(cell[f"{what}_seconds"]) for what in ("planned", "predicted", "rules", "best")),
            report.milliseconds(cell["single_seconds"].get(single)),
            report.percent(cell["regret"]),
            cell["planned"],
            "same" if cell["best"] == cell["planned"] else cell["best"],
        )
    console.print(table)
    show_regret(summary, "kernel", console)
    table = report.table(
        "Growth: a sum over 16 random neighbours", (), ("edges", "width", "ms", "predicted, ms", "ns an edge", "plan")
    )
    for row in results["growth"]:
        table.add_row(
            f"{row['edges']:,}",
            str(row["width"]),
            report.milliseconds(row["seconds"]),
            report.milliseconds(row["predicted_seconds"]),
            f"{row['nanoseconds_per_edge']:.2f}",
            row["plan"],
        )
    console.print(table)
    for name, reason in results["skipped"].items():
        console.print(f"[yellow]{name} skipped:[/] {reason}")


def show_regret(summary: Mapping, what: str, console) -> None:
    """The regrets of ``regret.summarise`` in lines. what: the word for that which is chosen."""
    if not summary:
        return
    left_out = f" ({summary['left_out']} left out, in which some plan was not measured)" if summary["left_out"] else ""
    console.print(
        f"[bold]Regret over {summary['cells']} cells{left_out}: mean {_percent(summary['mean_regret'])}, worst "
        f"{_percent(summary['worst_regret'])}[/]; rules alone: "
        f"{_percent(summary['mean_regret_of_rules'])}, {_percent(summary['worst_regret_of_rules'])}"
    )
    found = {"all": summary["single"], **summary["single_by_op"]}
    for of, best in ((of, best) for of, best in found.items() if best is not None):
        console.print(
            f"single: {best['kernel']}, the one {what} that is best for {of} cells together ({best['cells']} "
            f"compared): regret "
            f"mean {_percent(best['mean_regret'])}, worst {_percent(best['worst_regret'])}"
        )


def draw(results: Mapping, path: Path) -> Path:
    """Regret by width, a line for each graph and operator, and the growth of the cost. Returns the path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4.5))
    for name, op in dict.fromkeys((cell["graph"], cell["op"]) for cell in results["cells"]):
        points = [
            (cell["width"], 100 * cell["regret"])
            for cell in results["cells"]
            if (cell["graph"], cell["op"]) == (name, op)
        ]
        left.plot(*zip(*points), marker="o", linestyle="-" if op == "sum" else "--", label=f"{name}, {op}")
    left.set(xscale="log", xlabel="features", ylabel="regret, %", title="time of the plan over that of the best")
    left.axhline(10, color="black", linewidth=1)
    if results["cells"]:
        left.legend(fontsize="x-small", ncols=2)
    edges = [row["edges"] for row in results["growth"]]
    for what, label in (("seconds", "measured"), ("predicted_seconds", "predicted")):
        right.plot(edges, [row[what] / row["edges"] * 1e9 for row in results["growth"]], marker="o", label=label)
    right.set(xlabel="edges", ylabel="nanoseconds an edge", title="growth of the cost, 32 features")
    if edges:
        right.set(xscale="log", yscale="log")
    right.legend()
    for panel in (left, right):
        panel.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def _percent(share: float | None) -> str:
    return "not measured" if share is None else report.percent(share)
