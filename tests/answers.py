"""The part of ``python -m benchmarks.gpu`` that compares answers on a GPU with float64 on the CPU.

Calls are those of ``tests/default_plans.py``, beside them of convolution, of masks, of pruned weights, of float16, and
each plan that the planner has for a sum; each forward and backward. In the order of what an answer is worth.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn import Linear

import gnn_sparse_backend as gsb
from benchmarks.gpu.told import GPU, PREPARE, SKIPPED, WRONG, Told
from benchmarks.support.gpu import stand_ins
from gnn_sparse_backend.ops.core.plans import planned
from gnn_sparse_backend.ops.message.calls import run_aggregate
from gnn_sparse_backend.planner.candidates import trials
from gnn_sparse_backend.planner.plan import Plan
from gnn_sparse_backend.tuning.tune import problem_of_task
from gnn_sparse_backend.tuning.tuning_tasks import Task
from models.patterns import block_pattern
from tests.default_plans import TYPES, Case, a_graph, backward, cases, excess, operand, values
from tests.default_plans import operator as on_short_rows
from tests.ops.convolution.pairs import random_map
from tests.ops.operators import OPERATORS, ROUNDING

PRECISIONS = {"float32": False, "tf32": True, "float16": False, "bfloat16": False}
MASKS = {
    "band": lambda: gsb.masks.band(200, 24, 24, global_tokens=[0]),
    "causal": lambda: gsb.masks.causal(130),
    "butterfly": lambda: gsb.masks.butterfly(256, 64),
}
PLANNED = ("rows in parts", "filled rows", "rows of a few lanes")
LARGE = "large", "dense blocks", "shared columns", "by rows of the result"
"""Words of calls on graphs of a million edges, which come last and are left out of a rehearsal."""
REHEARSED = 48
"""A rehearsal takes one of this many calls."""


def _each_precision() -> Iterator[tuple[str, torch.dtype, bool]]:
    for words, tf32 in PRECISIONS.items():
        yield words, torch.float32 if tf32 else TYPES[words], tf32


def _convolution(widths: tuple[int, int], dtype: torch.dtype, groups: int = 1) -> Callable:
    def run(device: torch.device) -> tuple[Tensor, ...]:
        kernel_map = random_map().to(device)
        x = values(device, dtype, kernel_map.shape[1], groups * widths[0])
        w = values(device, dtype, kernel_map.num_offsets, widths[0], groups * widths[1])
        return backward(gsb.sparse_conv(x, w, kernel_map, groups=groups), x, w)

    return run


def _attention(mask: Callable[[], gsb.masks.Mask], width: int, dtype: torch.dtype) -> Callable:
    def run(device: torch.device) -> tuple[Tensor, ...]:
        made = mask().to(device)
        q, k, v = (values(device, dtype, 2, 2, n, width) for n in (*made.shape, made.shape[1]))
        return backward(gsb.sparse_attention(q, k, v, made), q, k, v)

    return run


def _products(mask: Callable[[], gsb.masks.Mask], dtype: torch.dtype) -> Callable:
    def run(device: torch.device) -> tuple[Tensor, ...]:
        made = mask().to(device)
        a, b = (values(device, dtype, 1, 2, n, 32) for n in made.shape)
        scores = gsb.masked_sddmm(made, a, b)
        return *backward(scores, a, b), *backward(gsb.masked_spmm(made, operand(scores, device, dtype), b), b)

    return run


def _pruned(format: str, dtype: torch.dtype) -> Callable:
    def run(device: torch.device) -> tuple[Tensor, ...]:
        kept = block_pattern(128, 192, 32, 0.3, seed=0)
        layer = Linear(192, 128)
        w, x = values(device, dtype, 128, 192), values(device, dtype, 70, 192)
        layer = layer.to(device, w.dtype)
        with torch.no_grad():
            layer.weight.copy_(w * kept.to(device))
            layer.bias.copy_(operand(layer.bias, device, dtype))
        sparse = gsb.nn.SparseLinear.from_dense(layer, kept.to(device), format=format)
        return backward(sparse(x), x, sparse.values, sparse.bias)

    return run


def more_cases() -> list[Case]:
    """Families that the calls of the default plans leave out, in every type."""
    found = []
    for words, dtype, tf32 in _each_precision():
        found += [
            Case(f"convolution {a} to {b} in {groups}, {words}", _convolution((a, b), dtype, groups), tf32)
            for a, b, groups in ((16, 24, 1), (5, 11, 2), (1, 1, 20), (64, 64, 1))
        ]
        found += [
            Case(f"attention on a mask, {name}, {width} wide, {words}", _attention(mask, width, dtype), tf32)
            for name, mask in MASKS.items()
            for width in (64, 7)
        ]
        found += [
            Case(f"products on a mask, {name}, {words}", _products(mask, dtype), tf32) for name, mask in MASKS.items()
        ]
        found += [
            Case(f"pruned weights, {format}, {words}", _pruned(format, dtype), tf32)
            for format in ("csr", "bsr(32)", "dbsr(32)", "bsr(16) + csr")
        ]
    return found + [Case(f"{name}, float16", on_short_rows(name, "short rows", torch.float16)) for name in OPERATORS]


def compared(case: Case, device: torch.device, mode: str) -> dict:
    """What a case gives beside float64."""
    results = case(device)
    if mode == PREPARE:
        return {}
    with on_cpu_kernels(mode):
        expected = case.exact()
    rounding = max(ROUNDING[torch.float16] if case.tf32 else 0.0, max(ROUNDING[y.dtype] for y in results))
    worst = []
    for found, exact in zip(results, expected, strict=True):
        if found.shape != exact.shape or found.device.type != device.type:
            return {"state": WRONG, "why": f"{tuple(found.shape)} on {found.device}, expected {tuple(exact.shape)}"}
        worst.append(excess(found.cpu(), exact, rounding))
    # not "greater": NaN is wrong
    wrong = [number for number, each in enumerate(worst) if not each <= 0]
    return {"state": WRONG, "why": f"results {wrong} are off by {worst}"} if wrong else {"excess": max(worst)}


@contextlib.contextmanager
def on_cpu_kernels(mode: str) -> Iterator[None]:
    """Inside the block references are computed: on a CPU that stands in for a GPU, of graphs of their own."""
    if mode == GPU:
        yield
        return
    a_graph.cache_clear()  # it has plans for a GPU
    with stand_ins.left():
        yield
    a_graph.cache_clear()


def plans(
    structure: str, op: str, width: int, device: torch.device, mode: str
) -> Iterator[tuple[str, Callable[[], dict]]]:
    """(words, call) of each plan of a sum on a graph."""
    graph = a_graph(structure, device)
    task = Task(op, "forward", graph, width, torch.float32)
    of = task.message_op
    torch.manual_seed(0)
    x, w = torch.randn(graph.shape[1], width), torch.rand(graph.num_edges, 1)
    operands = [x.to(device), w.to(device)][: len(of.places)]

    def compute(plan: Plan) -> dict:
        with planned(graph, of.kind, width, torch.float32, plan):
            found = run_aggregate(of, graph, operands)
        if mode == PREPARE:
            return {}
        with on_cpu_kernels(mode):
            exact = run_aggregate(of, a_graph(structure, torch.device("cpu")), [y.cpu().double() for y in operands])
        worst = excess(found.cpu(), exact, ROUNDING[torch.float32])
        return {"excess": worst} if worst <= 0 else {"state": WRONG, "why": f"off by {worst}"}

    for plan in trials(problem_of_task(task)):
        yield f"{op} of {width} on {structure}: {plan}", lambda plan=plan: compute(plan)


def run(told: Told) -> None:
    """All calls, quick ones first; a rehearsal takes some of each kind."""
    device = torch.device("cuda" if told.on_gpu else "cpu")
    every = [*more_cases(), *cases()]
    quick = [case for case in every if not any(words in case.name for words in LARGE)]
    large = [] if told.small else [case for case in every if case not in quick]
    for case in quick[:: REHEARSED if told.small else 1]:
        told.attempt(case.name, lambda case=case: compared(case, device, told.mode))
    grid = list(itertools.product(PLANNED, ("sum", "weighted_sum", "mean", "max"), (2, 64)))
    for structure, op, width in grid[: 1 if told.small else None]:
        for words, call in plans(structure, op, width, device, told.mode):
            told.attempt(words, call)
    for case in large:
        told.attempt(case.name, lambda case=case: compared(case, device, told.mode))
    told.record(
        "tensor algebra", SKIPPED, why="its kernels are for CPUs; the text of cuda(arch) is checked by nvcc alone"
    )
