"""Tables, pictures and files that all benchmarks share (reports of plain values, times in seconds)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.support import machine
from benchmarks.support.reasons import duration

MISSING = "–"
ROOFLINE_HEADINGS = ("compulsory", "gather", "binds")
ROOFLINE_NOTE = (
    "compulsory, gather: the bound that the measured limits set (bytes that must move; a row per edge) "
    "over our time; caches can push gather above 100 %. binds: what sets the bound."
)
# {panel title: {line label: [(x, ratio)]}}
Panels = Mapping[str, Mapping[str, Sequence[tuple[object, float]]]]


@contextmanager
def progress(console: Console, total: int) -> Iterator[Callable[[str], None]]:
    """A bar that is gone at the end. Call what it gives at the beginning of each of ``total`` cells, with the cell in
    words.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total, completed=-1)

        def begin(description: str) -> None:
            bar.update(task, description=description, advance=1)

        yield begin


def table(title: str, left: Iterable[str], right: Iterable[str]) -> Table:
    """An empty table: columns of words, then columns of numbers."""
    result = Table(title=title, title_justify="left")
    for heading in left:
        result.add_column(heading)
    for heading in right:
        result.add_column(heading, justify="right")
    return result


def print_head(report: dict, console: Console) -> None:
    """What the numbers were measured on, a warning if it was busy, and the measured limits."""
    console.print(machine.one_line(report["machine"]))
    if (warning := machine.busy(report["machine"])) is not None:
        console.print(f"[yellow]{warning}[/]")
    limits = report["roofline"]
    console.print(
        f"measured limits: copy {limits['stream_bytes_per_s'] / 1e9:.1f} GB/s beyond the caches, gather of "
        f"512-byte rows {limits['gather_bytes_per_s'] / 1e9:.1f} GB/s, float32 GEMM "
        f"{limits['gemm_flops_per_s'] / 1e9:.0f} GFLOP/s"
    )


def print_summary(summary: dict, console: Console) -> None:
    """Geometric means, the worst cells with their reasons, and wrong answers (``summary.summarise``)."""
    console.print(
        f"[bold]Geometric mean of the ratio to the best peer over {summary['cells']} cells: "
        f"{ratio(summary['geometric_mean'])}[/]"
    )
    for heading in (key for key in summary if key.startswith("by_")):
        parts = ", ".join(f"{name} {ratio(value)}" for name, value in summary[heading].items())
        console.print(f"  {heading.replace('_', ' ')}: {parts}")
    if summary["worst"]:
        console.print("[bold]The worst cells[/]")
    for number, cell in enumerate(summary["worst"], 1):
        times = f"{cell['best_ours']} {duration(cell['ours'])}, {cell['best_peer']} {duration(cell['theirs'])}"
        console.print(
            f"{number}. {cell['where']}: {ratio(cell['speedup'])} ({times})\n   {cell['reason']}", highlight=False
        )
    for cell in summary["wrong"]:
        for name, reason in cell["reason"].items():
            console.print(f"[red]WRONG: {cell['where']}: {name}: {reason}[/]")


def finish(report: dict, panels: Panels, name: str, xlabel: str, out: Path, console: Console) -> None:
    """Write ``name.json`` and ``name.png`` into the folder ``out``, and say so."""
    path = machine.write_json(out / f"{name}.json", report)
    console.print(f"written: {path}, {draw_ratios(panels, xlabel, out / f'{name}.png')}")


def draw_ratios(panels: Panels, xlabel: str, path: Path, ylabel: str = "best peer / ours") -> Path:
    """A panel per title with a line per label: ratios, on a logarithmic scale with 1 marked. Returns the path."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = max(1, -(-len(panels) // 4))
    columns = max(1, -(-len(panels) // rows))
    figure, axes = pyplot.subplots(rows, columns, figsize=(4.2 * columns, 4 * rows), sharey=True, squeeze=False)
    for panel in axes.flat[len(panels) :]:
        panel.set_visible(False)
    for panel, (title, lines) in zip(axes.flat, panels.items()):
        values = list(dict.fromkeys(x for points in lines.values() for x, _ in points))
        if all(isinstance(x, (int, float)) for x in values):
            values.sort()
        for label, points in lines.items():
            if points:
                panel.plot([values.index(x) for x, _ in points], [y for _, y in points], marker="o", label=label)
        panel.axhline(1, color="black", linewidth=1)
        panel.set(yscale="log", xlabel=xlabel, title=title)
        panel.set_xticks(range(len(values)), [str(value) for value in values])
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
        panel.grid(alpha=0.3, which="both")
        if any(lines.values()):
            panel.legend(fontsize="small")
    for first in axes[:, 0]:
        first.set_ylabel(ylabel)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def panels_of(
    cells: Iterable[dict], panel: str, line: str, x: str, value: str = "speedup"
) -> dict[str, dict[str, list]]:
    """Panels of the cells' ``value``: a panel for each value of the key ``panel``, and so on."""
    panels: dict[str, dict[str, list]] = {}
    for cell in cells:
        points = panels.setdefault(str(cell[panel]), {}).setdefault(str(cell[line]), [])
        if cell[value] is not None:
            points.append((cell[x], cell[value]))
    return panels


def roofline_columns(cell: dict) -> tuple[str, str, str]:
    """The entries under ``ROOFLINE_HEADINGS``."""
    return percent(cell["roofline_compulsory"]), percent(cell["roofline_gather"]), cell["binds"]


def median(cell: dict, name: str) -> str:
    """The median of a contender in milliseconds; marked where it rests on few samples."""
    if name in cell["timings"]:
        timing = cell["timings"][name]
        return f"{'~' if timing['samples'] < 5 else ''}{milliseconds(timing['median'])}"
    return "[red]wrong[/]" if name in cell["wrong"] else MISSING


def milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return MISSING
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def ratio(value: float | None) -> str:
    if value is None:
        return MISSING
    return f"[{'green' if value >= 1 else 'red'}]{value:.2f}[/]"


def percent(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.0f} %"
