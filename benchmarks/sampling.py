"""Samples of neighbours beside DGL's sampler and one in NumPy: ``python -m benchmarks.sampling``.

Parts: ``batches`` times single batches, ``features`` the gathering of a batch's rows, ``transposes`` what a batch's
transpose costs beside a step, ``epochs`` the loaders of PyG and DGL with their features, and ``overlap`` an epoch of a
step on batches that are made ahead or not. All contenders of a part are timed interleaved.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.support import cli, machine, report
from benchmarks.support.timing import Rules, interleaved

PARTS = ("batches", "features", "transposes", "epochs", "overlap")
FANOUTS, SEEDS = [10, 10, 10], 1024
SETS = 8
"""Sets of seeds that are taken in turns."""


class Problem:
    """A random graph of equal chances for every edge, and sets of seeds."""

    def __init__(self, nodes: int, edges: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.nodes, self.edges = nodes, edges
        self.row, self.column = (torch.randint(nodes, (edges,), generator=generator) for _ in range(2))
        self.graph = gsb.Graph.from_coo(self.row, self.column, (nodes, nodes))
        self.seeds = [torch.randperm(nodes, generator=generator)[:SEEDS] for _ in range(SETS)]
        self.x = torch.randn(nodes, 64, generator=generator)

    def dgl(self):
        import dgl

        return dgl.graph((self.column, self.row), num_nodes=self.nodes).formats(["csc"])


def in_numpy(graph: gsb.Graph) -> Callable[[Tensor], int]:
    """Each layer at once: a random number for each neighbour, of each row the least ones; ``unique`` numbers nodes."""
    indptr, indices = graph.indptr.numpy().astype(np.int64), graph.indices.numpy()
    rng = np.random.default_rng(0)

    def sample(seeds: Tensor) -> int:
        met, rows, total = seeds.numpy(), seeds.numpy(), 0
        for fanout in FANOUTS:
            degree = indptr[rows + 1] - indptr[rows]
            begins = np.cumsum(degree) - degree
            of_row = np.repeat(np.arange(len(rows)), degree)
            order = np.lexsort((rng.random(len(of_row), dtype=np.float32), of_row))
            kept = order[np.arange(len(of_row)) - begins[of_row] < fanout]
            positions = indptr[rows][of_row[kept]] + kept - begins[of_row[kept]]
            neighbours = indices[positions]
            total += len(neighbours)
            nodes, numbers = np.unique(np.concatenate([met, neighbours]), return_inverse=True)
            assert len(numbers) == len(met) + len(neighbours)
            rows, met = np.setdiff1d(nodes, met, assume_unique=True), nodes
        return total

    return sample


def batches(problem: Problem, budget: float) -> dict:
    import dgl

    blocks, graph = dgl.dataloading.NeighborSampler(FANOUTS), problem.dgl()
    contenders: dict[str, Callable[[Tensor], int]] = {
        "gsb": lambda seeds: len(gsb.sample_neighbors(problem.graph, seeds, FANOUTS).edges),
        "dgl": lambda seeds: sum(block.num_edges() for block in blocks.sample_blocks(graph, seeds)[2]),
        "numpy": in_numpy(problem.graph),
    }
    edges = {name: float(np.mean([sample(seeds) for seeds in problem.seeds])) for name, sample in contenders.items()}
    return _timed({name: _in_turns(sample, problem.seeds) for name, sample in contenders.items()}, edges, budget)


def features(problem: Problem, budget: float) -> dict:
    """Rows of a batch's nodes: by PyTorch, and by a kernel of ours, whose graph has an edge for each row of the batch;
    that graph is made anew for each batch, or kept.
    """
    nodes = gsb.sample_neighbors(problem.graph, problem.seeds[0], FANOUTS, seed=0).nodes

    def chosen() -> gsb.Graph:
        ends = torch.arange(len(nodes) + 1)
        return gsb.Graph.from_csr(ends, nodes, (len(nodes), problem.nodes), trusted=True)

    kept = chosen()
    assert torch.equal(gsb.spmm(kept, problem.x), problem.x.index_select(0, nodes))
    found = {
        "index_select": lambda: problem.x.index_select(0, nodes),
        "a sum of one row": lambda: gsb.spmm(kept, problem.x),
        "a sum of one row, graph made anew": lambda: gsb.spmm(chosen(), problem.x),
    }
    return _timed(found, {}, budget)


def transposes(problem: Problem, budget: float) -> dict:
    """A sum forward and backward on a new batch: its plan is found, and its transpose made, in the step."""
    sample = gsb.sample_neighbors(problem.graph, problem.seeds[0], FANOUTS, seed=0)
    x = problem.x.index_select(0, sample.nodes).requires_grad_()
    grad = torch.ones_like(x)
    ready = sample.graph

    def step(graph: gsb.Graph) -> None:
        x.grad = None
        gsb.spmm(graph, x).backward(grad)

    step(ready)
    found = {
        "plan and transpose ready": lambda: step(ready),
        "found in the step": lambda: step(sample.graph),
        "the transpose alone": lambda: sample.graph.transpose().indptr,
    }
    return _timed(found, {}, budget)


def epochs(problem: Problem, budget: float) -> dict:
    import dgl
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    train = torch.cat(problem.seeds)
    graph = problem.dgl()
    graph.ndata["x"] = problem.x
    sampler = dgl.dataloading.NeighborSampler(FANOUTS, prefetch_node_feats=["x"])
    theirs = dgl.dataloading.DataLoader(graph, train, sampler, batch_size=SEEDS)
    data = Data(x=problem.x, edge_index=torch.stack([problem.column, problem.row]))
    ours = NeighborLoader(data, FANOUTS, input_nodes=train, batch_size=SEEDS)

    def of_pyg() -> int:
        return sum(batch.edge_index.shape[1] for batch in ours if len(batch.x))

    def of_dgl() -> int:
        return sum(sum(b.num_edges() for b in blocks) for _, _, blocks in theirs if len(blocks[0].srcdata["x"]))

    found = {"NeighborLoader, gsb": of_pyg, "DGL's DataLoader": of_dgl}
    return _timed(found, {name: float(run()) for name, run in found.items()}, budget)


def overlap(problem: Problem, budget: float) -> dict:
    weight = torch.randn(64, 64)

    def made(seeds: Tensor) -> tuple[gsb.Graph, Tensor]:
        sample = gsb.sample_neighbors(problem.graph, seeds, FANOUTS)
        return sample.graph, problem.x.index_select(0, sample.nodes)

    def epoch(ready) -> float:
        total = 0.0
        for graph, x in ready:
            for _ in range(3):
                x = gsb.spmm(graph, x @ weight, reduce="mean")
            total += float(x.sum())
        return total

    found = {
        "one after the other": lambda: epoch(map(made, problem.seeds)),
        "Prefetcher": lambda: epoch(gsb.Prefetcher(problem.seeds, made)),
    }
    return _timed(found, {}, budget)


def _in_turns(sample: Callable[[Tensor], int], seeds: Sequence[Tensor]) -> Callable[[], int]:
    each = itertools.cycle(seeds)
    return lambda: sample(next(each))


def _timed(calls: dict[str, Callable], edges: dict[str, float], budget: float) -> dict:
    found = interleaved(calls, Rules(budget_s=budget, hopeless=100, slow=100))
    return {name: {"timing": timing.to_dict(), "edges": edges.get(name)} for name, timing in found.items()}


def run(nodes: int, edges: int, parts: Sequence[str], *, budget: float, threads: int, seed: int = 0) -> dict:
    """Measure; the report as plain values, times in seconds of a batch or an epoch."""
    problem = Problem(nodes, edges, seed)
    with gsb.enabled("pyg"):
        found = {part: globals()[part](problem, budget / len(parts)) for part in parts}
    return {"machine": machine.describe(threads), "nodes": nodes, "edges": edges, "parts": found}


def show(results: dict, console) -> None:
    console.print(machine.one_line(results["machine"]))
    for part, found in results["parts"].items():
        first = next(iter(found.values()))
        title = f"{part}: {results['nodes']:,} nodes, {results['edges']:,} edges; {SEEDS} seeds, fanouts {FANOUTS}"
        table = report.table(title, ("sampler",), ("ms", "edges", "million edges / s", "ratio"))
        for name, each in found.items():
            seconds, drawn = each["timing"]["median"], each["edges"]
            rate = "" if drawn is None else f"{drawn / seconds / 1e6:.1f}"
            mine = first["timing"]["median"] if drawn is None else first["timing"]["median"] / first["edges"]
            other = seconds if drawn is None else seconds / drawn
            table.add_row(
                name, f"{seconds * 1e3:.1f}", "" if drawn is None else f"{drawn:,.0f}", rate, f"{other / mine:.2f}"
            )
        console.print(table)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=60.0)
    parser.add_argument("--nodes", type=cli.positive_int, default=200_000)
    parser.add_argument("--edges", type=cli.positive_int, default=2_000_000)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args(argv)
    if options.quick:
        options.nodes, options.edges, options.budget = 5000, 50_000, min(options.budget, 3.0)
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the tables, write ``sampling.json``."""
    options = arguments(argv)
    console = cli.start(options)
    given = dict(budget=options.budget, threads=options.threads, seed=options.seed)
    results = run(options.nodes, options.edges, options.parts, **given)
    show(results, console)
    console.print(f"written: {machine.write_json(options.out / 'sampling.json', results)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
