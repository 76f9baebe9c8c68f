"""Operators that take the way to a GPU on a machine without one: planned and dispatched as there, on tensors of the
CPU.

What is replaced is the boundary alone: which architecture a device has, what its driver tells, and how a scheduled
program becomes a kernel. Beside it benchmarks find a device, small graphs, and times of single calls on the host's
clock. **Times that are taken so are no figures of a GPU.**
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import torch

from benchmarks.support import graphs
from benchmarks.support.generators import power_law
from benchmarks.support.gpu import timing
from benchmarks.support.graphs import BenchmarkGraph
from benchmarks.support.roofline import Roofline
from gnn_sparse_backend.compiler.cache.default import default_store
from gnn_sparse_backend.compiler.cache.kernel import Kernel
from gnn_sparse_backend.compiler.codegen import cuda_target
from gnn_sparse_backend.compiler.compile import compile_program, kernel_key
from gnn_sparse_backend.compiler.language.program import Program, Store, walk_iterations
from gnn_sparse_backend.ops.core import cuda_build, plans_cuda
from gnn_sparse_backend.planner.cuda.gpu import Gpu, describe_gpu
from gnn_sparse_backend.runtime import devices

ARCH = "sm_90"
# By architecture: name, multiprocessors, bytes of the second-level cache.
GPUS = {"sm_90": ("H100", 132, 50 << 20), "sm_80": ("A100", 108, 40 << 20)}
LIMITS = Roofline(0, ((1, 1e12),), 1e12, 1e12)
Build = Callable[[Program, object, str], Kernel]


@contextmanager
def on_the_cpu(gpu: Gpu, build: Build) -> Iterator[None]:
    """Inside the block tensors of the CPU take the way of tensors on ``gpu``, whose kernels ``build`` makes."""
    instead = lambda device: gpu.arch, lambda device: False, lambda device, arch: gpu, build
    with _replaced((*where, value) for where, value in zip(BOUNDARY, instead, strict=True)):
        yield


BOUNDARY = (devices, "arch_of"), (devices, "on_cpu"), (plans_cuda, "_gpu"), (cuda_build, "build")
_ORIGINAL = [(module, name, getattr(module, name)) for module, name in BOUNDARY]


@contextmanager
def left() -> Iterator[None]:
    """Inside the block tensors of the CPU take the CPU's own way, as a reference does. What was planned for a structure
    stays with it: make another.
    """
    with _replaced(_ORIGINAL):
        yield


@contextmanager
def _replaced(values: Iterable[tuple[object, str, object]]) -> Iterator[None]:
    with ExitStack() as patches:
        for module, name, value in values:
            patches.enter_context(mock.patch.object(module, name, value))
        yield


@dataclasses.dataclass
class Kernels:
    """How many kernels were asked for, and the programs of those that are not in the cache as machine code for a
    GPU.
    """

    asked: int = 0
    missing: list[str] = dataclasses.field(default_factory=list)


def serial(kernels: Kernels) -> Build:
    """A kernel's schedule for a GPU, run serially on the CPU; ``kernels`` notes whether the cache has its machine
    code.
    """

    def build(program: Program, schedule, arch: str) -> Kernel:
        kernels.asked += 1
        disk = default_store().disk
        if disk is None or disk.load(kernel_key(program, schedule, cuda_target(arch))) is None:
            kernels.missing.append(program.name)
        return compile_program(program, schedule, serial=True)

    return build


def compiled(program: Program, schedule, arch: str) -> Kernel:
    """A kernel that is compiled for a GPU and kept in the cache; a launch fills its results with zeros."""
    kernel = compile_program(program, schedule, cuda_target(arch))
    stored = {
        statement.buffer.name
        for it in walk_iterations(program.iterations)
        for statement in (*it.init, *it.body)
        if isinstance(statement, Store)
    }

    def launch(*arguments) -> None:
        for name, argument in zip(program.parameter_names, arguments, strict=True):
            if name in stored:
                argument.zero_()  # numbers of edges among them, which index other arrays

    return dataclasses.replace(kernel, entry=launch)


def small_graph(name: str, seed: int = 0) -> BenchmarkGraph:
    """A graph of some hundred edges under any name."""
    return BenchmarkGraph.of(name, "generated, small", power_law(200, 900, 2.1, 60, seed))


def seconds_once(call: Callable[[], object], device: torch.device, flush: bool) -> float:
    """Seconds of a single call on the host's clock."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def times_once(call: Callable[[], object], device: torch.device) -> dict[str, float]:
    """What `gpu_steps.times` gives, of a single call."""
    taken = seconds_once(call, device, False)
    return {"warm": taken, "flushed": taken, "host": taken, "peak": 1}


@contextmanager
def a_gpu(arch: str, build: Build, small: bool) -> Iterator[None]:
    """Inside the block operators and the benchmarks with ``--device cuda`` run on tensors of the CPU. small: graphs
    have some hundred edges.
    """
    from benchmarks.layers import gpu_steps
    from benchmarks.layers.rgcn import gpu as rgcn_gpu
    from benchmarks.layers.rgcn import graphs as rgcn_graphs
    from benchmarks.layers.sparse_conv import clouds
    from benchmarks.planner import gpu_ratings

    name, multiprocessors, cache = GPUS[arch]
    gpu = describe_gpu(f"a stand-in for {name}", arch, multiprocessors, cache)
    patches = [
        (timing, "device_and_name", lambda: (torch.device("cpu"), gpu.name)),
        (timing, "seconds", seconds_once),
        (timing, "TURNS", 1),
        (gpu_ratings, "limits", lambda *given, **more: LIMITS),
        (gpu_steps, "times", times_once),
    ]
    if small:
        layers = clouds.layers
        patches += [
            (graphs, "load", small_graph),
            (clouds, "layers", lambda *given: layers(*given)[:2]),
            (rgcn_gpu, "load_available", lambda names, seed: (small_relations(each, seed) for each in names)),
        ]

    def small_relations(name: str, seed: int) -> rgcn_graphs.RelationalGraph:
        generator = torch.Generator().manual_seed(seed)
        source, destination, relation = torch.randint(0, 60, (3, 300), generator=generator).numpy()
        return rgcn_graphs.of_triples(name, "generated, small", 60, 3, source, destination, relation % 3)

    with on_the_cpu(gpu, build), _replaced(patches):
        yield
