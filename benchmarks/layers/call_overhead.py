"""What a call costs beside its kernel, on a graph that is known and on the fresh graphs of mini-batches.

For each of some sampled blocks, in rounds: the compiled kernel alone, called with the very arguments that the call gave
it; a call on a graph just made of arrays just written; the same call again. The order alternates. Beforehand, in rounds
of their own, both calls with nothing in the place of the kernel. Each of these is the least of all rounds, and a row of
the table is the median over the blocks. Under a framework the call is one layer's message passing with the backend;
beside it stand the framework's own call on the same blocks without the backend, and on a block of one edge, which is
about what the framework itself spends on calling.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from benchmarks.support import report
from benchmarks.support.generators import power_law
from benchmarks.support.graphs import BenchmarkGraph
from gnn_sparse_backend import Graph
from gnn_sparse_backend.ops.core.executable import OnList
from gnn_sparse_backend.ops.message import prepared_call
from gnn_sparse_backend.ops.message.executables.one_pass import OnePass
from gnn_sparse_backend.ops.message.executables.scattered import Scattered
from gnn_sparse_backend.ops.message.executables.several_passes import Partitions, Parts

SEEDS, FAN_OUTS, WIDTH = 1024, (10, 25), 64
NODES, EDGES, BLOCKS = 100_000, 3_000_000, 12
OPS = ("sum", "weighted", "mean", "max")


@dataclass(frozen=True)
class Block:
    """A sampled block as CSR; the destinations are the first of the sources."""

    indptr: Tensor
    indices: Tensor
    shape: tuple[int, int]

    def written_anew(self) -> Block:
        """A copy, written by one thread: PyTorch's others would wait for more work on the cores that are measured."""
        return Block(*(torch.from_numpy(array.numpy().copy()) for array in (self.indptr, self.indices)), self.shape)


ONE_EDGE = Block(torch.tensor([0, 1], dtype=torch.int32), torch.zeros(1, dtype=torch.int32), (1, 1))


def sampled_graph(seed: int) -> BenchmarkGraph:
    return BenchmarkGraph.of(
        "sampled", "generated", power_law(NODES, EDGES, 2.1, 2_000, seed, communities=100, locality=0.6)
    )


def sample(graph: BenchmarkGraph, seeds: int, fan_outs: Sequence[int], rng: np.random.Generator) -> list[Block]:
    """A block for each fan-out: of random in-edges of the seeds, then of all nodes of the block before."""
    frontier, blocks = rng.permutation(graph.shape[0])[:seeds], []
    for fan_out in fan_outs:
        first, degrees = graph.indptr[frontier], np.diff(graph.indptr)[frontier]
        taken = np.minimum(degrees, fan_out)
        indptr = np.concatenate(([0], taken.cumsum())).astype(np.int32)
        row = np.repeat(np.arange(len(frontier)), taken)
        sources = graph.indices[first[row] + (rng.random(len(row)) * degrees[row]).astype(np.int64)]
        place = np.full(graph.shape[1], -1, np.int32)
        place[frontier] = np.arange(len(frontier))
        new = np.unique(sources[place[sources] < 0])
        place[new] = np.arange(len(frontier), len(frontier) + len(new))
        blocks.append(
            Block(torch.from_numpy(indptr), torch.from_numpy(place[sources]), (len(frontier), len(frontier) + len(new)))
        )
        frontier = np.concatenate((frontier, new))
    return blocks


@contextmanager
def recorded(left_out: bool = False) -> Iterator[list[tuple]]:
    """The (entry, arguments) of every compiled kernel that aggregations call inside the block. left_out: nothing is
    called, nor recorded.
    """
    calls: list[tuple] = []

    def recording(entry):
        def call(*arguments):
            # as tensors of their own: a result may become another tensor, a message that was deferred
            calls.append((entry, [x.detach() if isinstance(x, Tensor) else x for x in arguments]))
            entry(*arguments)

        found = (lambda *arguments: None) if left_out else call
        found.bare = entry
        return found

    class Recorded:
        def __init__(self, kernel):
            self.kernel, self.entry = kernel, recording(kernel.entry)

    kinds = OnePass, Scattered, Partitions, Parts
    before = [kind.__call__ for kind in kinds]

    def recorded_call(run):
        def call(self, *arguments):
            own = self._kernels
            self._kernels = {key: Recorded(kernel) for key, kernel in own.items()}
            try:
                run(self, *arguments)
            finally:
                made = {key: kernel for key, kernel in self._kernels.items() if not isinstance(kernel, Recorded)}
                self._kernels = {**own, **made}

        return call

    bind, run_prepared, launch = prepared_call._bind, prepared_call.PreparedAggregate.__call__, OnList.launch

    def recorded_bind(*arguments):
        bound = bind(*arguments)
        return None if bound is None else bound._replace(entry=recording(bound.entry))

    def recorded_prepared(self, *arguments):
        if self._bound is not None:
            self._bound = self._bound._replace(entry=recording(self._bound.entry))
        try:
            return run_prepared(self, *arguments)
        finally:
            if self._bound is not None:
                self._bound = self._bound._replace(entry=self._bound.entry.bare)

    def recorded_launch(self, *arguments):
        self._entry = recording(self._entry)
        try:
            launch(self, *arguments)
        finally:
            self._entry = self._entry.bare

    for kind, run in zip(kinds, before):
        kind.__call__ = recorded_call(run)
    OnList.launch = recorded_launch
    prepared_call._bind, prepared_call.PreparedAggregate.__call__ = recorded_bind, recorded_prepared
    try:
        yield calls
    finally:
        prepared_call._bind, prepared_call.PreparedAggregate.__call__, OnList.launch = bind, run_prepared, launch
        for kind, run in zip(kinds, before):
            kind.__call__ = run


@dataclass(frozen=True)
class Caller:
    """A way to call: ``prepare`` makes a graph of a block, ``call`` aggregates on it. backend: switches it on."""

    name: str
    prepare: Callable[[Block], object]
    call: Callable[[object, Tensor, Tensor], object]
    backend: Callable[[], AbstractContextManager] = nullcontext


def operators() -> list[Caller]:
    """``gsb.spmm`` of each kind."""

    def prepare(block: Block) -> Graph:
        return Graph.from_csr(block.indptr, block.indices, block.shape, trusted=True)

    def caller(op: str) -> Caller:
        reduce = "sum" if op == "weighted" else op
        return Caller(
            f"gsb.spmm, {op}",
            prepare,
            lambda graph, x, weight: gsb.spmm(graph, x, weight if op == "weighted" else None, reduce),
        )

    return [caller(op) for op in OPS]


def shims(frameworks: Sequence[str]) -> list[Caller]:
    """One layer's message passing of each framework."""
    return [{"dgl": _dgl, "pyg": _pyg}[name]() for name in frameworks]


def _dgl() -> Caller:
    import dgl
    import dgl.function as fn

    def prepare(block: Block):
        rows, columns = block.shape
        return dgl.create_block(("csc", (block.indptr, block.indices, block.indices[:0])), columns, rows)

    def call(block, x: Tensor, weight: Tensor):
        with block.local_scope():
            block.srcdata["x"] = x
            block.update_all(fn.copy_u("x", "m"), fn.sum("m", "y"))
            return block.dstdata["y"]

    return Caller("dgl", prepare, call, lambda: gsb.enabled("dgl"))


def _pyg() -> Caller:
    from torch_geometric.nn import MessagePassing

    class Sum(MessagePassing):
        def __init__(self):
            super().__init__(aggr="sum")

        def forward(self, x, edge_index, size):
            return self.propagate(edge_index, x=(x, None), size=size)

        def message(self, x_j):
            return x_j

    layer = Sum()

    def prepare(block: Block):
        rows = torch.repeat_interleave(torch.arange(block.shape[0]), block.indptr.diff().long())
        return torch.stack((block.indices.long(), rows)), block.shape[::-1]

    return Caller("pyg", prepare, lambda graph, x, weight: layer(x, *graph), lambda: gsb.enabled("pyg"))


def _seconds(call: Callable, *arguments) -> float:
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin


def measure(caller: Caller, blocks: Sequence[Block], width: int, budget: float, rounds: int = 40) -> dict:
    """One row of the table, in seconds. Rounds go on until ``budget`` seconds are over, two of them at least."""
    x = torch.randn(max(block.shape[1] for block in blocks), width)
    operands = [(x[: block.shape[1]], torch.rand(block.indices.numel())) for block in blocks]
    kernels = []
    with caller.backend(), torch.no_grad():
        for block, (own, weight) in zip(blocks, operands):
            caller.call(caller.prepare(block.written_anew()), own, weight)
            with recorded() as calls:
                caller.call(caller.prepare(block.written_anew()), own, weight)
            kernels.append(list(calls))
    if not all(kernels):
        raise RuntimeError(f"{caller.name}: no kernel was called")

    def bare(at: int) -> dict:
        return {"kernel": sum(_seconds(entry, *arguments) for entry, arguments in kernels[at])}

    def whole(at: int, prefix: str = "") -> dict:
        block, own, weight = blocks[at].written_anew(), *operands[at]
        making = time.perf_counter()
        graph = caller.prepare(block)
        making = time.perf_counter() - making
        fresh = _seconds(caller.call, graph, own, weight)
        return {
            f"{prefix}making": making,
            f"{prefix}fresh": fresh,
            f"{prefix}known": min(_seconds(caller.call, graph, own, weight) for _ in range(3)),
        }

    least: list[dict] = [{} for _ in blocks]
    alone = caller.backend is not nullcontext
    one_edge: dict = {}
    end = time.perf_counter() + budget
    # by itself: threads that wait for the next kernel would be in the way
    for turn in range(rounds):
        for at, known in enumerate(least):
            with caller.backend(), torch.no_grad(), recorded(left_out=True):
                for key, value in whole(at, "calling_").items():
                    known[key] = min(value, known.get(key, value))
        if turn and time.perf_counter() > end - budget / 2:
            break
    for turn in range(rounds):
        for at, known in enumerate(least):
            with caller.backend(), torch.no_grad():
                found = {**bare(at), **whole(at)} if turn % 2 else {**whole(at), **bare(at)}
            if alone:
                with torch.no_grad():
                    found |= whole(at, "alone_")
                    for key, value in _one_edge(caller, width).items():
                        one_edge[key] = min(value, one_edge.get(key, value))
            for key, value in found.items():
                known[key] = min(value, known.get(key, value))
        if turn and time.perf_counter() > end:
            break
    row = {key: statistics.median(known[key] for known in least) for key in least[0]}
    row |= {
        f"{key}_over": statistics.median(known[key] - known["kernel"] for known in least) for key in ("known", "fresh")
    }
    return {"call": caller.name, "width": width, "rounds": turn + 1, **row, **one_edge}


def _one_edge(caller: Caller, width: int) -> dict:
    graph = caller.prepare(ONE_EDGE.written_anew())
    operands = torch.ones(1, width), torch.ones(1)
    return {
        "one_edge_fresh": _seconds(caller.call, graph, *operands),
        "one_edge_known": _seconds(caller.call, graph, *operands),
    }


def run(
    frameworks: Sequence[str],
    *,
    budget: float,
    seed: int = 0,
    width: int = WIDTH,
    seeds: int = SEEDS,
    blocks: int = BLOCKS,
    graph: BenchmarkGraph | None = None,
    begin: Callable[[str], None] = lambda cell: None,
) -> list[dict]:
    """A row for each call and fan-out, times in seconds."""
    graph = sampled_graph(seed) if graph is None else graph
    rng = np.random.default_rng(seed)
    batches = [sample(graph, seeds, FAN_OUTS, rng) for _ in range(blocks)]
    callers = [*operators(), *shims(frameworks)]
    share = budget / (len(callers) * len(FAN_OUTS))
    rows = []
    for at, fan_out in enumerate(FAN_OUTS):
        own = [batch[at] for batch in batches]
        for caller in callers:
            begin(f"calls: {caller.name}, fan-out {fan_out}")
            rows.append(
                {
                    "fan_out": fan_out,
                    "destinations": round(statistics.median(b.shape[0] for b in own)),
                    "edges": round(statistics.median(b.indices.numel() for b in own)),
                    **measure(caller, own, width, share),
                }
            )
    return rows


def show(rows: Sequence[Mapping], console) -> None:
    """Microseconds by call."""
    table = report.table(
        f"What a call costs beside its kernel, microseconds, {rows[0]['width']} features",
        ("call",),
        (
            "fan-out",
            "edges",
            "kernel",
            "known: over it",
            "without it",
            "fresh: over it",
            "without it",
            "making",
            "alone, known",
            "fresh",
            "one edge, known",
            "fresh",
        ),
    )
    for row in rows:
        table.add_row(
            row["call"],
            str(row["fan_out"]),
            f"{row['edges']:,}",
            *(
                f"{row[key] * 1e6:.0f}" if key in row else report.MISSING
                for key in (
                    "kernel",
                    "known_over",
                    "calling_known",
                    "fresh_over",
                    "calling_fresh",
                    "making",
                    "alone_known",
                    "alone_fresh",
                    "one_edge_known",
                    "one_edge_fresh",
                )
            ),
        )
    console.print(table)
    console.print(
        "over it: the call less the compiled kernel, called alone with the same arguments. without it: the call with "
        "nothing in the "
        "place of the kernel, which a busy machine disturbs less, for no threads meet. known: a graph that was called "
        "with before; "
        "fresh: one just made. making: the Graph, the DGL block, the edge index. alone: the framework's call without "
        "the "
        "backend; one edge: the same on one edge, which is about its own calling. Nothing of a framework is subtracted "
        "from the "
        "other columns. The least of all rounds for each block, then the median over blocks."
    )
