"""What a partition costs: edges between parts, halos and balance."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from ..frozen import dataclass
from ..runtime.text import render


@dataclass(frozen=True)
class Report:
    """Summary of a partition; prints as a table.

    Attributes:
        method: how the graph was cut.
        num_edges: edges of the whole graph.
        rows, edges, cut, halo: counts for each part: its destinations, the edges into them, those of the edges that
            come from another part, and the sources that these come from.
    """

    method: str
    num_edges: int
    rows: tuple[int, ...]
    edges: tuple[int, ...]
    cut: tuple[int, ...]
    halo: tuple[int, ...]

    @classmethod
    def of(cls, method: str, num_edges: int, told: list[dict]) -> Report:
        def count(name: str) -> tuple[int, ...]:
            return tuple(part["files"][name]["shape"][0] for part in told)

        return cls(method, num_edges, count("rows"), count("edges"), tuple(p["cut"] for p in told), count("halo"))

    @property
    def edge_cut(self) -> float:
        """Edges between parts, of all edges."""
        return sum(self.cut) / max(self.num_edges, 1)

    @property
    def balance(self) -> float:
        """Edges of the largest part over those of an average one."""
        return max(self.edges) * len(self.edges) / max(self.num_edges, 1)

    def as_dict(self) -> dict:
        return asdict(self) | {"edge_cut": self.edge_cut, "balance": self.balance}

    def __str__(self) -> str:
        title = f"{self.method}: {self.edge_cut:.1%} of the edges cut, largest part {self.balance:.2f} of the average"
        table = Table("part", "rows", "edges", "cut edges", "halo")
        for part, counts in enumerate(zip(self.rows, self.edges, self.cut, self.halo)):
            table.add_row(str(part), *(f"{each:,}" for each in counts))
        return render(title, table)


def draw(report: Report, path: Path) -> None:
    """Edges within and between parts, and halos, as a picture; nothing without Matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure((6, 3.2), layout="constrained")
    axes = figure.subplots(1, 2)
    parts = range(len(report.rows))
    inner = [edges - cut for edges, cut in zip(report.edges, report.cut)]
    axes[0].bar(parts, inner, label="within the part")
    axes[0].bar(parts, report.cut, bottom=inner, label="from other parts")
    axes[0].set(title="edges", xlabel="part")
    axes[0].legend()
    axes[1].bar(parts, report.rows, label="own rows")
    axes[1].bar(parts, report.halo, bottom=report.rows, label="halo")
    axes[1].set(title="nodes", xlabel="part")
    axes[1].legend()
    FigureCanvasAgg(figure).print_png(path)
