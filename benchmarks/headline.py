"""The table and the chart of the README, from the tables of epochs in ``benchmarks/results/``.

Run it so, after a page of epochs has changed:

    python -m benchmarks.headline --write
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
CHART = ROOT / "docs" / "speedup.svg"
MARKS = ("<!-- start: speedup -->\n", "<!-- end: speedup -->\n")


class Machine(NamedTuple):
    """A processor, and the table of its epochs: a page and the title above it."""

    name: str
    page: str
    title: str


MACHINES = (
    Machine("Zen 4 (AVX-512)", "epochs-zen4.md", "Full graph, float32"),
    Machine("Xeon (AVX-512)", "epochs.md", "Xeon (AVX-512): full graph, float32"),
    Machine("EPYC (AVX2)", "epochs-epyc-avx2.md", "Zen 2: full graph, float32"),
)
NETWORKS = {
    f"{framework}, {layer}": f"{framework_name} {layer_name}"
    for framework, framework_name in (("pyg", "PyG"), ("dgl", "DGL"))
    for layer, layer_name in (("gcn", "GCN"), ("gat", "GAT"), ("sage", "GraphSAGE"), ("gin", "GIN"))
}


class Epoch(NamedTuple):
    """Milliseconds of an epoch: of the framework alone, with the allocator that the backend has, with the backend."""

    alone: float
    same_allocator: float
    backend: float

    @property
    def ratios(self) -> tuple[float, float]:
        """How many times faster the backend is: than the framework alone, than with the same allocator."""
        return self.alone / self.backend, self.same_allocator / self.backend


def epochs(machine: Machine) -> dict[str, Epoch]:
    """By the name of the network; ValueError where the page lacks one."""
    section = (RESULTS / machine.page).read_text(encoding="utf-8").partition(f"## {machine.title}\n")[2]
    table = re.search(r"(?:^\|.*\n)+", section.partition("\n## ")[0], re.MULTILINE)
    found = {}
    for line in table[0].splitlines() if table else ():
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if known := NETWORKS.get(re.sub(r" \W$", "", name)):
            found[known] = Epoch(*(float(cell.replace(",", "")) for cell in cells[:3]))
    if missing := set(NETWORKS.values()) - set(found):
        raise ValueError(f"{machine.page} has no {', '.join(sorted(missing))} under {machine.title!r}")
    return {network: found[network] for network in NETWORKS.values()}


Measured = Mapping[Machine, Mapping[str, Epoch]]


def table(measured: Measured) -> str:
    """In Markdown: the times of the first machine, and the ratios of all."""
    first = next(iter(measured))
    heads = [
        "epoch",
        "framework",
        "same allocator",
        "with the backend",
        *(each.name.partition(" (")[0] for each in measured),
    ]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for network, epoch in measured[first].items():
        ratios = [measured[machine][network].ratios for machine in measured]
        shown = [f"**{alone:.1f}** ({same:.1f})" for alone, same in ratios]
        lines.append([network, *(f"{each:,.0f} ms" for each in epoch), *shown])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


WIDTH, LEFT, BAR, GAP, TOP = 620, 118, 12, 12, 82
COLOURS = ("#3f51b5", "#00897b", "#e65100")
STYLE = """\
    text { font: 13px sans-serif; fill: #1f2430; }
    .head { font-size: 16px; font-weight: bold; }
    .small { font-size: 12px; fill: #4a5064; }
    .ground { fill: #ffffff; }
    .grid { stroke: #d9dce6; }
    .one { stroke: #4a5064; stroke-dasharray: 3 3; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6e8ef; }
      .small { fill: #b6bccb; }
      .ground { fill: #1e2129; }
      .grid { stroke: #3a3f4d; }
      .one { stroke: #b6bccb; }
      .a { fill: #8c9eff; } .b { fill: #4db6ac; } .c { fill: #ffab66; }
    }
"""


def chart(measured: Measured) -> str:
    """An SVG: of each network a bar for each machine, as long as the ratio to the framework alone. Its full part is the
    ratio to the framework with the same allocator. It follows the reader's choice of light or dark.
    """
    longest = max(epoch.ratios[0] for epochs in measured.values() for epoch in epochs.values())
    scale = (WIDTH - LEFT - 45) / longest
    group = len(measured) * BAR + GAP
    height = TOP + len(NETWORKS) * group + 34
    bottom = height - 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        '  <title id="title">How many times faster a training epoch is with the backend</title>',
        f"  <style>\n{STYLE}  </style>",
        f'  <rect class="ground" width="{WIDTH}" height="{height}"/>',
        '  <text class="head" x="12" y="24">Training epochs on two CPU cores: times faster with the backend</text>',
    ]
    x = 12
    for machine, letter, colour in zip(measured, "abc", COLOURS):
        lines.append(f'  <rect class="{letter}" x="{x}" y="38" width="12" height="12" fill="{colour}"/>')
        lines.append(f'  <text x="{x + 18}" y="49">{machine.name}</text>')
        x += 150
    key = "full bars: than the framework with the same allocator; pale bars: than the framework alone"
    lines.append(f'  <text class="small" x="12" y="69">{key}</text>')
    for tick in range(int(longest) + 1):
        at = LEFT + tick * scale
        kind = "one" if tick == 1 else "grid"
        lines.append(f'  <path class="{kind}" d="M{at:.1f} {TOP}V{bottom}"/>')
        lines.append(f'  <text class="small" x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{tick}</text>')
    for row, network in enumerate(NETWORKS.values()):
        y = TOP + row * group + GAP // 2
        middle = y + len(measured) * BAR / 2 + 5
        lines.append(f'  <text x="{LEFT - 8}" y="{middle:.0f}" text-anchor="end">{network}</text>')
        for place, (letter, colour, epochs) in enumerate(zip("abc", COLOURS, measured.values())):
            alone, same = epochs[network].ratios
            at = y + place * BAR
            for ratio, paleness in ((alone, ' opacity="0.45"'), (same, "")):
                lines.append(
                    f'  <rect class="{letter}" x="{LEFT}" y="{at}" width="{ratio * scale:.1f}" height="{BAR - 2}" '
                    f'fill="{colour}"{paleness}/>'
                )
            x = LEFT + alone * scale + 5
            lines.append(f'  <text class="small" x="{x:.1f}" y="{at + BAR - 2}">{alone:.1f}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def written() -> Iterator[tuple[Path, str]]:
    """(file, what it ought to hold) of all that is made here."""
    measured = {machine: epochs(machine) for machine in MACHINES}
    before, start, rest = README.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not (start and end):
        raise ValueError(f"{README.name} has no place for the table: {MARKS[0].strip()} and {MARKS[1].strip()}")
    yield README, f"{before}{start}{table(measured)}{end}{after}"
    yield CHART, chart(measured)


def main(arguments: Sequence[str] | None = None) -> int:
    """1 where a file is not as the pages have it, and is not to be written."""
    parser = argparse.ArgumentParser(prog="headline", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write README.md and docs/speedup.svg")
    write = parser.parse_args(arguments).write
    stale = [(path, text) for path, text in written() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path, text in stale:
        if write:
            path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)} {'is written' if write else 'differs from benchmarks/results/: use --write'}")
    return int(bool(stale) and not write)


if __name__ == "__main__":
    sys.exit(main())
