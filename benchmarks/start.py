"""What a process pays before its first result: ``python -m benchmarks.start``.

Processor time and resident memory that importing a framework takes, what ``gsb.enable`` adds to it, and the first
layer, forward and backward; and the same for the package by itself and its first ``gsb.spmm``. Then the first training
steps of PyG's GCN on Cora, by PyG alone (``gcn``) and with this package (``gcn+gsb``). Kernels are on the disk, and
modules have their bytecode there, as after an installation. Each figure is a median, and beside it the least, over
fresh processes, which take turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.support import cli, graphs, machine, report

_PROGRAM = """
import json, time
from pathlib import Path
def resident():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)
found = []
def done(step):
    found.append((step, time.process_time(), resident() << 10))
import torch
done("import torch")
{steps}
print(json.dumps(found))
"""
_OPERANDS = """
index = torch.randint(3000, (2, 200_000), generator=torch.Generator().manual_seed(0))
x = torch.ones(3000, 8, requires_grad=True)
"""
_STEPS = {
    "gsb": """
import gnn_sparse_backend as gsb
done("import")
graph = gsb.Graph.from_coo(index[1], index[0], (3000, 3000))
gsb.spmm(graph, x)
done("first spmm")
""",
    "dgl": """
import dgl, dgl.nn.pytorch
done("import")
import gnn_sparse_backend as gsb
gsb.enable("dgl")
done("enable")
dgl.nn.pytorch.SAGEConv(8, 8, "mean")(dgl.graph((index[0], index[1]), num_nodes=3000), x).sum().backward()
done("first layer")
""",
    "pyg": """
import torch_geometric.nn
done("import")
import gnn_sparse_backend as gsb
gsb.enable("pyg")
done("enable")
torch_geometric.nn.SAGEConv(8, 8)(x, index).sum().backward()
done("first layer")
""",
}
CORA = ("gcn", "gcn+gsb")
_STEPS |= {
    subject: f"""
import os
import torch_geometric.nn
from torch_geometric.io import read_planetoid_data
cora = read_planetoid_data(os.environ["GSB_DATA"] + "/planetoid", "cora")
torch.manual_seed(0)
model = torch_geometric.nn.GCN(cora.num_features, 16, 2, 7, dropout=0.5)
optimizer = torch.optim.Adam(model.parameters())
def step():
    optimizer.zero_grad()
    scores = model(cora.x, cora.edge_index)[cora.train_mask]
    torch.nn.functional.cross_entropy(scores, cora.y[cora.train_mask]).backward()
    optimizer.step()
done("import, read")
{enable}
step()
done("first step")
step()
done("second step")
"""
    for subject, enable in zip(CORA, ("", 'import gnn_sparse_backend as gsb\ngsb.enable("pyg")\ndone("enable")'))
}
COLUMNS = ("processor time, s", "least, s", "resident, MiB")


def measure(subject: str, folder: str) -> list[tuple[str, float, int]]:
    """(step, seconds, bytes) that each step of a subject adds in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"GSB_CACHE_DIR": f"{folder}/kernels", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
    program = _PROGRAM.format(steps=_OPERANDS + _STEPS[subject])
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return [
        (step, seconds - before[1], held - before[2]) for before, (step, seconds, held) in itertools.pairwise(found)
    ]


def run(subjects: Sequence[str], processes: int, begin: Callable[[str], None] = lambda subject: None) -> list[dict]:
    """A row for each step of each subject, with medians over the processes, behind one that fills the disk."""
    runs: dict[str, list] = {subject: [] for subject in subjects}
    with tempfile.TemporaryDirectory(prefix="gsb-start-") as folder:
        for turn in range(processes + 1):
            begin(f"process {turn} of {processes}")
            for subject in subjects:
                found = measure(subject, folder)
                if turn:
                    runs[subject].append(found)
    return [row for subject, found in runs.items() for row in _rows(subject, found)]


def _rows(subject: str, runs: Sequence[Sequence[tuple[str, float, int]]]) -> Iterator[dict]:
    for of_step in zip(*runs):
        (step, *_), seconds, held = zip(*of_step)
        figures = {"seconds": statistics.median(seconds), "least": min(seconds), "bytes": statistics.median(held)}
        yield {"subject": subject, "step": step, **figures}


def show(rows: Sequence[Mapping], console) -> None:
    table = report.table("What each step of a process adds, medians", ("of", "step"), COLUMNS)
    for row in rows:
        figures = f"{row['seconds']:.3f}", f"{row['least']:.3f}", f"{row['bytes'] / 2**20:.0f}"
        table.add_row(row["subject"], row["step"], *figures)
    console.print(table)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=120.0)
    parser.add_argument(
        "--subjects", nargs="+", choices=tuple(_STEPS), default=[subject for subject in _STEPS if subject not in CORA]
    )
    parser.add_argument("--processes", type=cli.positive_int, default=5, help="of each (default: 5)")
    options = parser.parse_args(argv)
    if wanting := set(CORA).intersection(options.subjects):
        try:
            graphs.data_file("planetoid/ind.cora.x")
        except graphs.Unavailable as error:
            parser.error(f"{', '.join(sorted(wanting))}: {error}")
    if options.quick:
        options.subjects, options.processes = ["gsb"], 1
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, write ``start.json``."""
    options = arguments(argv)
    console = cli.start(options)
    with report.progress(console, options.processes + 1) as begin:
        rows = run(options.subjects, options.processes, begin)
    show(rows, console)
    results = {"machine": machine.describe(options.threads), "rows": rows}
    console.print(f"written: {machine.write_json(options.out / 'start.json', results)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
