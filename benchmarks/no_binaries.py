"""Libraries that are given without a binary, beside their algorithms: ``python -m benchmarks.no_binaries``.

Parts: ``points`` times the nearest points and those within a radius beside SciPy's cKDTree, which is built for each
call, with a tree for each cloud; ``reductions`` sums, means and maxima by an index and by pointers beside
``torch.scatter_reduce`` and ``torch.segment_reduce``, forward, and forward and backward; ``products`` those of two
sparse matrices beside ``torch.sparse.mm``, and of one with features beside ``gsb.spmm``; ``walks`` random ones beside a
loop that draws by NumPy; ``periodic`` radius graphs of crystals beside ASE's list, and is skipped where ASE is not
installed. All contenders of a case are timed interleaved, and a case whose share of ``--budget`` is over ends after
`RULES.min_rounds` rounds: with the default all parts take about eight minutes on two cores.

``--page no_binaries.json`` measures nothing, and writes the page of results of an earlier run.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console
from scipy.spatial import cKDTree
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.paper.sheets import Sheet, write
from benchmarks.support import cli, machine, report
from benchmarks.support.timing import Rules, interleaved
from gnn_sparse_backend.integrations import pyg_lib, torch_cluster, torch_scatter, torch_sparse

PAGE = Path(__file__).parent / "results" / "no-binaries.md"
PARTS = ("points", "reductions", "products", "walks", "periodic")
NEIGHBOURS = 16
RULES = Rules(min_rounds=4, long_rounds=2, long_s=0.5, hopeless=100, slow=100)
ROWS_PER_ENTRY = 8
"""Numbers that are reduced into a row, in the mean."""


def points(quick: bool, seed: int) -> dict[str, dict[str, Callable]]:
    """Cases by name, each with its contenders."""
    torch.manual_seed(seed)
    cases = [(1_000, 3, 1), (10_000, 2, 1), (10_000, 3, 16)]
    if not quick:
        cases += [
            (1_000, 16, 1),
            (100_000, 2, 1),
            (100_000, 3, 1),
            (100_000, 3, 256),
            (1_000_000, 3, 1),
            (10_000, 16, 1),
        ]
    found: dict[str, dict[str, Callable]] = {}
    for count, width, clouds in cases:
        x = torch.rand(count, width)
        batch = torch.arange(clouds).repeat_interleave(-(-count // clouds))[:count]
        parts = [x[batch == b].numpy() for b in range(clouds)]
        radius = (NEIGHBOURS * clouds / count / 4.19) ** (1 / 3) if width == 3 else (NEIGHBOURS / count / 3.14) ** 0.5
        name = f"{count:,} points, {width}D, {clouds} clouds"
        found[f"knn, {name}"] = {
            "gsb": lambda x=x, batch=batch: torch_cluster.knn(x, x, NEIGHBOURS, batch, batch),
            "cKDTree": lambda parts=parts: [
                cKDTree(p).query(p, NEIGHBOURS, workers=torch.get_num_threads())[1] for p in parts
            ],
        }
        if width <= 3:
            found[f"radius, {name}"] = {
                "gsb": lambda x=x, batch=batch, r=radius: torch_cluster.radius(x, x, r, batch, batch, 64),
                "cKDTree": lambda parts=parts, r=radius: [_within(p, r) for p in parts],
            }
    return found


def _within(points: np.ndarray, radius: float) -> np.ndarray:
    tree = cKDTree(points)
    return tree.sparse_distance_matrix(tree, radius, output_type="ndarray")


def reductions(quick: bool, seed: int) -> dict[str, dict[str, Callable]]:
    torch.manual_seed(seed)
    found: dict[str, dict[str, Callable]] = {}
    for count, width in [(20_000, 16)] if quick else [(20_000, 16), (200_000, 1), (200_000, 64), (1_000_000, 16)]:
        size = count // ROWS_PER_ENTRY
        x, index = torch.randn(count, width), torch.randint(0, size, (count,))
        pointers = torch.searchsorted(index.sort().values, torch.arange(size + 1))
        for reduce in ("sum", "mean", "max"):
            of_torch = {"sum": "sum", "mean": "mean", "max": "amax"}[reduce]
            wide = index[:, None].expand(-1, width)

            def theirs(x: Tensor, how: str = of_torch, size: int = size, wide: Tensor = wide) -> Tensor:
                zeros = x.new_zeros(size, x.shape[1])
                return torch.scatter_reduce(zeros, 0, wide, x, how, include_self=False)

            def ours(x: Tensor, reduce: str = reduce, size: int = size, index: Tensor = index) -> Tensor:
                return torch_scatter.scatter(x, index, 0, dim_size=size, reduce=reduce)

            def segments(x: Tensor, reduce: str = reduce, pointers: Tensor = pointers) -> Tensor:
                return torch_scatter.segment_csr(x, pointers, reduce=reduce)

            def of_segments(x: Tensor, reduce: str = reduce, pointers: Tensor = pointers) -> Tensor:
                return torch.segment_reduce(x, reduce, offsets=pointers, axis=0, initial=0, unsafe=True)

            for kind, mine, other in (("scatter", ours, theirs), ("segment", segments, of_segments)):
                name = f"{kind} {reduce}, {count:,} x {width}"
                found[name] = {"gsb": lambda f=mine, x=x: f(x), "PyTorch": lambda f=other, x=x: f(x)}
                found[f"{name}, backward"] = {
                    "gsb": lambda f=mine, x=x: _back(f, x),
                    "PyTorch": lambda f=other, x=x: _back(f, x),
                }
    return found


def products(quick: bool, seed: int) -> dict[str, dict[str, Callable]]:
    """Squares of matrices with entries at random places, and products of such with features."""
    torch.manual_seed(seed)
    found: dict[str, dict[str, Callable]] = {}
    for rows, entries in [(2_000, 8)] if quick else [(2_000, 8), (20_000, 8), (20_000, 32), (200_000, 8)]:
        index = torch.randint(rows, (2, rows * entries))
        matrix = torch_sparse.SparseTensor(
            row=index[0], col=index[1], value=torch.rand(rows * entries), sparse_sizes=(rows,) * 2
        )
        matrix = matrix.coalesce()
        theirs = matrix.to_torch_sparse_coo_tensor()  # as torch-sparse multiplies
        found[f"spspmm, {rows:,} rows of {entries}"] = {
            "gsb": lambda a=matrix: torch_sparse.matmul(a, a),
            "torch.sparse.mm": lambda a=theirs: torch.sparse.mm(a, a).coalesce(),
        }
        x, (row, col, value) = torch.randn(rows, 64), matrix.coo()
        graph = gsb.Graph.from_coo(row, col, (rows, rows))
        found[f"matmul, {rows:,} rows of {entries}, 64 features"] = {
            "gsb": lambda a=matrix, x=x: torch_sparse.matmul(a, x),
            "gsb.spmm": lambda graph=graph, x=x, value=value: gsb.spmm(graph, x, value),
        }
    return found


def walks(quick: bool, seed: int) -> dict[str, dict[str, Callable]]:
    """Walks of 20 steps, on graphs with 16 edges a node in the mean."""
    torch.manual_seed(seed)
    found: dict[str, dict[str, Callable]] = {}
    cases = [(1_000, 1_000, 1.0, 1.0), (1_000, 200, 0.25, 4.0)]
    for nodes, starts, p, q in cases if quick else [*cases, (100_000, 10_000, 1.0, 1.0), (100_000, 200, 0.25, 4.0)]:
        row, col = torch.randint(nodes, (2, 16 * nodes))
        start, order = torch.randint(nodes, (starts,)), (row * nodes + col).argsort()
        indptr, indices = torch.searchsorted(row[order], torch.arange(nodes + 1)), col[order]
        ours = functools.partial(pyg_lib.sampler.random_walk, indptr, indices, start, 20, p, q)
        theirs = functools.partial(_walks, indptr.numpy(), indices.numpy(), start.tolist(), 20, p, q)
        found[f"walks, {starts:,} on {nodes:,} nodes, p = {p:g}, q = {q:g}"] = {"gsb": ours, "NumPy": theirs}
    return found


def _walks(indptr: np.ndarray, indices: np.ndarray, start: list[int], steps: int, p: float, q: float) -> list:
    return [_walk(indptr, indices, node, steps, p, q) for node in start]


def _walk(indptr: np.ndarray, indices: np.ndarray, node: int, steps: int, p: float, q: float) -> list[int]:
    """A walk of node2vec (Grover and Leskovec, 2016, section 3.2.2)."""
    visited = [node]
    for _ in range(steps):
        near = indices[indptr[node] : indptr[node + 1]]
        if not len(near):
            visited.append(node)
            continue
        if len(visited) == 1 or (p, q) == (1.0, 1.0):
            chosen = near[np.random.randint(len(near))]
        else:
            before = visited[-2]
            known = indices[indptr[before] : indptr[before + 1]]
            chances = np.where(near == before, 1 / p, np.where(np.isin(near, known), 1.0, 1 / q))
            chosen = np.random.choice(near, p=chances / chances.sum())
        node = int(chosen)
        visited.append(node)
    return visited


def periodic(quick: bool, seed: int) -> dict[str, dict[str, Callable]]:
    """Atoms at random places, a tenth of one in a cubic angstrom, with neighbours up to 5 angstroms away."""
    from ase import Atoms
    from ase.neighborlist import neighbor_list

    torch.manual_seed(seed)
    found: dict[str, dict[str, Callable]] = {}
    for count in (8, 1_000) if quick else (8, 1_000, 10_000):
        side = (count / 0.1) ** (1 / 3)
        cell = torch.eye(3, dtype=torch.float64) * side
        cell[1, 0] = 0.3 * side
        pos = torch.rand(count, 3, dtype=torch.float64) @ cell
        atoms = Atoms(numbers=[1] * count, positions=pos.numpy(), cell=cell.numpy(), pbc=True)
        found[f"periodic radius graph, {count:,} atoms"] = {
            "gsb": lambda pos=pos, cell=cell: gsb.radius_graph(pos, 5.0, cell),
            "ASE": lambda atoms=atoms: neighbor_list("ijSD", atoms, 5.0),
        }
    return found


def _back(function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    x = x.detach().requires_grad_()
    function(x).sum().backward()


def run(parts: Sequence[str], *, quick: bool, budget: float, threads: int, seed: int = 0) -> dict:
    """Measure; the report as plain values, times in seconds of a call."""
    cases = {name: calls for part in parts for name, calls in globals()[part](quick, seed).items()}
    found = {}
    for name, calls in cases.items():
        timed = interleaved(calls, dataclasses.replace(RULES, budget_s=budget / len(cases)))
        found[name] = {contender: timing.to_dict() for contender, timing in timed.items()}
    return {"machine": machine.describe(threads), "cases": found}


def show(results: dict, console: Console) -> None:
    console.print(machine.one_line(results["machine"]))
    table = report.table("libraries without a binary", ("case",), ("gsb, ms", "peer, ms", "peer / gsb"))
    for name, found in results["cases"].items():
        mine, other = (each["median"] for each in found.values())
        table.add_row(name, f"{mine * 1e3:.2f}", f"{other * 1e3:.2f}", f"{other / mine:.2f}")
    console.print(table)


ABOUT = (
    "The modules that are given for torch-scatter, torch-cluster, torch-sparse and pyg-lib, beside the algorithms that "
    "there are without them ([what there is](../../docs/howto/no-binaries.md)): medians of calls that take turns, "
    "SciPy's trees built in each. backward: forward and backward."
)


class Kind(NamedTuple):
    """Cases with one aim. names: how they begin; aim: how many times faster; cause: why some are below it."""

    title: str
    names: tuple[str, ...]
    aim: float
    cause: str


KINDS = (
    Kind(
        "Points near others, beside cKDTree",
        ("knn", "radius"),
        2.0,
        "",
    ),
    Kind(
        "Reductions, beside torch.scatter_reduce and torch.segment_reduce",
        ("scatter", "segment"),
        2.0,
        "20,000 numbers of 16 take 0.1 ms, half of it around the kernel. Of one number a row a pass forward and "
        "backward is mostly the sum that ends it, and the gradient of that, which are PyTorch's in both.",
    ),
    Kind(
        "Products of two sparse matrices, beside torch.sparse.mm",
        ("spspmm",),
        1.3,
        "",
    ),
    Kind(
        "Products of SparseTensor with features, beside gsb.spmm",
        ("matmul",),
        0.9,
        "The kernel is the same one; torch_sparse.matmul finds the graph of its storage first, in some 0.03 ms.",
    ),
    Kind(
        "Random walks, beside a loop that draws by NumPy",
        ("walks",),
        20.0,
        "",
    ),
    Kind(
        "Periodic radius graphs, beside ASE",
        ("periodic",),
        5.0,
        "The aim is one of 10,000 atoms. Of few atoms most of a call are PyTorch's operators that find the images.",
    ),
)


def page(results: dict) -> list[Sheet]:
    """The tables of the page of results, and below each what is under its aim."""
    sheets = []
    for kind in KINDS:
        cells = {name: found for name, found in results["cases"].items() if name.startswith(kind.names)}
        times = {name: [each["median"] for each in found.values()] for name, found in cells.items()}
        rows = [(name, f"{a * 1e3:.2f}", f"{b * 1e3:.2f}", f"{b / a:.2f}") for name, (a, b) in times.items()]
        under = [f"{name} ({b / a:.2f})" for name, (a, b) in times.items() if b / a < kind.aim]
        ratios = [b / a for a, b in times.values()]
        notes = [f"Geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}."] if ratios else []
        notes += [f"Under the aim of {kind.aim:g}: {'; '.join(under)}. {kind.cause}".rstrip()] if under else []
        if cells:
            sheets.append(Sheet(kind.title, ("case", "gsb, ms", "peer, ms", "peer / gsb"), rows, notes=notes))
    return sheets


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=240.0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--page", type=Path, metavar="JSON", help="write the page of results of an earlier run")
    options = parser.parse_args(argv)
    if options.quick:
        options.budget = min(options.budget, 8.0)
    return options


def _has_ase(console: Console) -> bool:
    found = importlib.util.find_spec("ase") is not None
    if not found:
        console.print("[yellow]periodic skipped:[/] ASE is not installed; pip install ase")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, write ``no_binaries.json``."""
    options = arguments(argv)
    console = cli.start(options)
    if options.page is not None:
        results = json.loads(options.page.read_text(encoding="utf-8"))
        command = "python -m benchmarks.no_binaries"
        sheets = page(results)
        written = write(PAGE, "Libraries without a binary", command, ABOUT, results["machine"], sheets, None)
        console.print(f"written: {written}")
        return 0
    parts = [part for part in options.parts if part != "periodic" or _has_ase(console)]
    results = run(parts, quick=options.quick, budget=options.budget, threads=options.threads, seed=options.seed)
    show(results, console)
    console.print(f"written: {machine.write_json(options.out / 'no_binaries.json', results)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
