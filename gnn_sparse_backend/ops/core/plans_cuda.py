"""Plans of operators on a GPU. A graph is planned at its first call, which may wait for the GPU; later calls never do.

A plan waits once, for the longest row of a graph of many edges. Each format that is made of the structure for it waits
once for sizes of its own: rows in buckets, chunks of non-zeros, blocks (SR-BCRS, BSR), pairs of a row and a relation,
tiles of rows (once more where rows are cut: docs/design/cuda.md).

So a CUDA graph is captured after one call outside of the capture, which also compiles; or after `precompile`.
"""

from __future__ import annotations

import functools

import torch

from ...planner.cuda import rows
from ...planner.cuda.cost import default_units
from ...planner.cuda.gpu import Gpu, describe_gpu
from ...planner.cuda.plan import CudaPlan
from ...planner.cuda.strategies import plan_of_rows
from ...planner.database import PlanDatabase, database
from ...planner.problem import CudaProblem
from ...runtime import devices
from ...structures.derived import fact


def gpu_of(device: torch.device) -> Gpu | None:
    """What the planner knows of a GPU; None for a CPU. Raises as `devices.check_kernels` where its kernels lack
    something.
    """
    arch = devices.arch_of(device)
    return _gpu(device, arch) if arch else None


@functools.cache
def _gpu(device: torch.device, arch: str) -> Gpu:
    found = torch.cuda.get_device_properties(device)
    # which of these are there depends on the version of PyTorch
    known = "L2_cache_size", "clock_rate", "memory_clock_rate", "memory_bus_width"
    more = (int(getattr(found, name, 0)) for name in known)
    return describe_gpu(found.name, arch, found.multi_processor_count, *more)


def database_of_gpu(device: torch.device) -> PlanDatabase:
    """What was measured on GPUs of this one's name."""
    gpu = gpu_of(device)
    assert gpu is not None
    return database().on(gpu.machine, default_units(gpu))


def problem_of_rows(graph, arch: str, features: int, longest: int, kind: str = "") -> CudaProblem:
    """What rules that look at rows alone are told of an operator on a graph whose rows have ``longest`` edges at most.

    kind: as in a `Problem`; "" where edges may not be shared out to lanes.
    """
    return CudaProblem(kind, *graph.shape, graph.num_edges, features, "float32", 1, longest=longest, arch=arch)


def cuda_plan_of(graph, arch: str, features: int) -> CudaPlan:
    """The plan of an operator over the edges of a graph by rules alone."""
    return plan_of_rows(problem_of_rows(graph, arch, features, longest_of(graph)))


def plan_unsynchronised(graph, arch: str, kind: str, features: int, longest: int) -> CudaPlan:
    """The plan of an aggregation or an edge map, by sizes alone, on a graph whose rows have ``longest`` edges at most.

    Rows are cut where one may be long. Formats that take a sort to make are for graphs that stay.
    """
    return plan_of_rows(problem_of_rows(graph, arch, features, longest, kind))


def cuda_problem_of(graph, gpu: Gpu, kind: str, features: int, dtype: str) -> CudaProblem:
    """What the planner is told of an aggregation or an edge map on this graph."""
    size, longest = (*graph.shape, graph.num_edges), longest_of(graph)
    return CudaProblem(kind, *size, features, dtype, 1, longest=longest, arch=gpu.arch, cache=gpu.cache)


def longest_of(graph) -> int:
    """Non-zeros of the longest row, 0 where all are short; looked at once, which waits for the GPU."""
    return 0 if graph.num_edges < rows.LONG_ROW else longest_of_all(graph)


@fact
def longest_of_all(graph) -> int:
    """Non-zeros of the longest row."""
    return int(graph.indptr.diff().max())  # waits for the GPU
