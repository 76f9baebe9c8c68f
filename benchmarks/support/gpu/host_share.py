"""What a call on a GPU takes of the host, measured without a GPU: on a stand-in whose kernels do nothing.

Operators plan and dispatch as for CUDA, on known graphs, with tensors of a few rows on the CPU. What TVM-FFI does with
the arguments of a kernel, and the checks of these, are there; PyTorch's operators are those of the CPU, and no driver
is called. **These are no
figures of a GPU**: a launch, and what PyTorch takes to allocate there, come on top.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import torch
from tvm import tirx

import gnn_sparse_backend as gsb
from benchmarks.support import report
from benchmarks.support.gpu.stand_ins import on_the_cpu
from gnn_sparse_backend.compiler.cache.default import get_kernel
from gnn_sparse_backend.compiler.cache.kernel import Kernel
from gnn_sparse_backend.compiler.codegen import build_shared, host_target
from gnn_sparse_backend.compiler.language.program import Program
from gnn_sparse_backend.compiler.lowering import flatten, lower
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.ops.relational.schedules_cuda_rows import LEAST_BLOCKS
from gnn_sparse_backend.planner.cuda.buckets import BucketPlan
from gnn_sparse_backend.planner.cuda.chunks import ChunkPlan
from gnn_sparse_backend.planner.cuda.gpu import Gpu
from gnn_sparse_backend.planner.cuda.rows import LANES_PAY, LONG_ROW, PART, LanePlan, TeamPartPlan

ARCH = "nothing"
ROWS, EDGES, FEATURES, HEADS, RELATIONS = 64, 640, 64, 4, 4
MANY_ROWS = 16 * LEAST_BLOCKS  # where blocks own rows of relational products
_launched: list[tuple] | None = None


def nothing_of(program: Program) -> Kernel:
    """A kernel with the parameters of a program, which checks its arguments and does nothing."""

    def build(folder):
        function = flatten(lower(program))
        return build_shared(function.with_body(tirx.Evaluate(0)), host_target(), folder)

    return get_kernel(program.script(), "nothing", host_target(), build, name=program.name, symbol=program.name)


def _build(program: Program, schedule, arch: str) -> Kernel:
    kernel = nothing_of(program)
    entry = kernel.entry

    def launch(*arguments):
        if _launched is not None:
            _launched.append((entry, arguments))
        entry(*arguments)

    return dataclasses.replace(kernel, entry=launch)


@contextmanager
def stand_in() -> Iterator[None]:
    """Inside the block tensors of the CPU take the way of tensors on a GPU, whose kernels do nothing."""
    with on_the_cpu(Gpu("a stand-in", ARCH), _build):
        yield


@contextmanager
def launched() -> Iterator[list[tuple]]:
    """The (entry, arguments) of every kernel that is launched inside the block."""
    global _launched
    before, _launched = _launched, []
    try:
        yield _launched
    finally:
        _launched = before


def graph(longest: int = 0) -> gsb.Graph:
    """A graph of some tens of rows, one of which has ``longest`` edges."""
    generator = torch.Generator().manual_seed(0)
    row = torch.cat([torch.randint(0, ROWS, (EDGES,), generator=generator), torch.full((longest,), 3)])
    return gsb.Graph.from_coo(row, torch.randint(0, ROWS, row.shape, generator=generator), (ROWS, ROWS))


def calls() -> Iterator[tuple[str, Callable, Callable]]:
    """(name, call, context to call in) of operators on graphs of their own."""
    x, scores = torch.randn(ROWS, FEATURES), torch.randn(ROWS, HEADS)
    heads = x.view(ROWS, HEADS, -1)
    buckets = BucketPlan(ARCH, PART)
    segments = ChunkPlan(TeamPartPlan(LanePlan(ARCH, LANES_PAY), PART))
    for shape, g in (("", graph()), (", a long row", graph(LONG_ROW + 1))):
        weight = torch.rand(g.num_edges)
        for reduce in ("sum", "mean", "max"):
            yield f"spmm, {reduce}{shape}", functools.partial(gsb.spmm, g, x, None, reduce), nullcontext
        yield f"spmm, weighted{shape}", functools.partial(gsb.spmm, g, x, weight), nullcontext
        yield f"sddmm{shape}", functools.partial(gsb.sddmm, g, x, x), nullcontext
        yield f"attention{shape}", functools.partial(gsb.attention, g, heads, heads, heads), nullcontext
        yield f"gat_attention{shape}", functools.partial(gsb.gat_attention, g, scores, scores, heads), nullcontext
        if shape:
            yield (
                "spmm, sum, buckets",
                functools.partial(gsb.spmm, g, x),
                functools.partial(planned, g, "sum:column", FEATURES, x.dtype, buckets),
            )
            yield (
                "spmm, weighted, buckets",
                functools.partial(gsb.spmm, g, x, weight),
                functools.partial(planned, g, "sum:column,edge", FEATURES, x.dtype, buckets),
            )
            yield (
                "spmm, sum, chunks",
                functools.partial(gsb.spmm, g, x[:, :2].contiguous()),
                functools.partial(planned, g, "sum:column", 2, x.dtype, segments),
            )
    for rows, shape in ((ROWS, ""), (MANY_ROWS, ", many rows")):
        ends, x = (
            torch.randint(0, rows, (2, 4 * rows), generator=torch.Generator().manual_seed(0)),
            torch.randn(rows, FEATURES),
        )
        relational = gsb.RelGraph.from_triples(*ends, torch.arange(4 * rows) % RELATIONS, (rows, rows), RELATIONS)
        for dtype in (torch.float32, torch.float16):
            given = x.to(dtype), torch.randn(RELATIONS, FEATURES, FEATURES).to(dtype)
            yield (
                f"rgms, {str(dtype).removeprefix('torch.')}{shape}",
                functools.partial(gsb.rgms, relational, *given),
                nullcontext,
            )


def run(budget: float) -> list[dict]:
    """A row for each call, in seconds: the median and the least of the whole, and of its kernels alone, which do
    nothing.
    """
    with stand_in(), torch.no_grad():
        cases = list(calls())
        return [_measure(*case, budget / len(cases)) for case in cases]


def _measure(name: str, call: Callable, context: Callable, budget: float) -> dict:
    with context():
        for _ in range(3):
            call()
        with launched() as kernels:
            call()

        def bare() -> None:
            for entry, arguments in kernels:
                entry(*arguments)

        times: dict[str, list[float]] = {"whole": [], "bare": []}
        end = time.perf_counter() + budget
        while len(times["whole"]) < 10 or time.perf_counter() < end:
            for key, timed in (("whole", call), ("bare", bare)):
                before = time.perf_counter()
                timed()
                times[key].append(time.perf_counter() - before)
    return {
        "call": name,
        "launches": len(kernels),
        "arguments": sum(len(arguments) for _, arguments in kernels),
        "whole": statistics.median(times["whole"]),
        "least": min(times["whole"]),
        "bare": min(times["bare"]),
    }


def show(rows: Sequence[Mapping], console) -> None:
    """Microseconds by call."""
    table = report.table(
        "The host's share of a call on a stand-in for a GPU, microseconds: no figures of a GPU",
        ("call",),
        ("launches", "arguments", "median", "least", "kernels that do nothing"),
    )
    for row in rows:
        table.add_row(
            row["call"],
            str(row["launches"]),
            str(row["arguments"]),
            *(f"{row[key] * 1e6:.1f}" for key in ("whole", "least", "bare")),
        )
    console.print(table)
    console.print(
        "A call on a known graph, in Python, PyTorch and TVM-FFI. kernels that do nothing: the part of it that hands "
        "arguments over and checks them, the least. A launch, and allocation on a GPU, are not in it."
    )


__all__ = ["graph", "launched", "nothing_of", "run", "show", "stand_in"]
