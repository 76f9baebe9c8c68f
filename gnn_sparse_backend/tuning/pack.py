"""``gsb.pack``: the kernels that some work uses, for several processors, in one file."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch

from ..compiler.cache.bounded import forget
from ..compiler.cache.default import default_store
from ..compiler.cache.store import Wanted
from ..compiler.codegen import Target, compiling_for, target_of
from ..compiler.codegen.cpu.checks import CHECKS
from ..compiler.codegen.cpu.launcher import LAUNCHER, build_text
from ..compiler.codegen.cpu.workspace import WORKSPACE
from ..compiler.codegen.linker import needed_linker
from ..compiler.codegen.object_files import is_library
from ..compiler.own_schedules import in_force
from ..compiler.packs import Pack, PackedKernel, PackedTarget, PackError
from ..compiler.packs.file import write_pack
from ..compiler.packs.processor import needs_of
from ..compiler.packs.toolchain import toolchain
from ..config import TARGETS
from ..planner.database import PlanDatabase, database
from ..planner.machine import caches
from ..runtime.large_blocks import LARGE_BLOCKS

HELPERS = LAUNCHER, CHECKS, WORKSPACE, LARGE_BLOCKS
"""Machine code that is no kernel and that every process needs."""


def pack(
    work: Callable[[], object],
    path: str | os.PathLike[str],
    targets: Sequence[str] | None = None,
    *,
    threads: Sequence[int] | None = None,
) -> Pack:
    """Write a file with every kernel that some work uses, for `load_pack` in other processes, on other machines.

        pack = gsb.pack(lambda: train(model, batch), "kernels.gsb", targets=["x86-64-v3", "x86-64-v4"])
        print(pack.sha256)

    ``work()`` is run once for each target and number of threads, on kernels that are chosen for the target; where this
    machine cannot run its code, on kernels of this machine in their places. So ``work`` has to do what the other
    process will: forward and backward, with the widths, types and sizes of its graphs, on one thread and on several.
    Kernels that are in memory already are noted as well, but not those that a compiled tensor expression holds, and
    plans are those of the cost model, not of measurements: make such expressions, and graphs that were measured, within
    ``work``. While it runs, kernels that other threads ask for are noted, too.

    Args:
        work: a function without arguments.
        path: the file to write, ``kernels.gsb`` say; one that is there is replaced at the end.
        targets: names of processors: "native", this one, as without any; levels "x86-64-v2", "x86-64-v3", "x86-64-v4";
            "aarch64", any of 64 bits, "neoverse-n1", "neoverse-v1", "neoverse-v2", for which a linker has to be
            installed, as PyPI's package ziglang has one.
        threads: for how many threads of PyTorch the work is run: (1, those that it has now, at least 2) by default,
            since kernels for one thread are others. Those for further numbers may be, too: name the numbers that the
            other process will have.

    Returns:
        What `load_pack` returns, with its ``sha256``.

    Raises:
        TypeError: ``work`` is not callable.
        ValueError: a target or number of threads is none.
        PackError: the work used no kernel, one for a GPU or by a schedule in force (`gsb.schedule`), or the file cannot
            be written.
        compiler.BuildError: a kernel cannot be compiled for a target, or there is no linker for it.
    """
    if not callable(work):
        raise TypeError(f"pack: work must be a function without arguments, got {type(work).__name__}: {work!r:.80}")
    names = tuple(dict.fromkeys(("native",) if targets is None else _listed(targets)))
    for name in names:
        if name not in TARGETS:
            raise ValueError(f"pack: unknown target {name!r}: choose from {', '.join(TARGETS)}")
    counts = tuple(dict.fromkeys((1, max(2, torch.get_num_threads())) if threads is None else threads))
    if not counts or not all(isinstance(count, int) and count > 0 for count in counts):
        raise ValueError(f"pack: threads must be numbers of threads, such as (1, 4), got {threads!r}")
    made_for = {name: target_of(name) for name in names}
    for target in made_for.values():
        needed_linker("kernels", target)
    wanted: dict[str, tuple[str, Wanted]] = {}
    for name, target in made_for.items():
        for key, each in _recorded(work, target, counts).items():
            wanted[key] = name, each
    libraries = {}
    for name, each in wanted.values():
        library = default_store().library(each)
        kernel = _packed(each.key.identity, each.name, each.key.symbol, each.key.target, name, library)
        libraries[kernel] = library
    for name, target in made_for.items():
        for helper in HELPERS:
            with tempfile.TemporaryDirectory(prefix="gsb-") as folder:
                library = build_text(helper, target, folder).read_bytes()
            libraries[_packed(helper.identity(target), helper.name, helper.name, target.key, name, library)] = library
    described = [_described(name, target) for name, target in made_for.items()]
    return write_pack(path, toolchain(), described, libraries, {"threads": list(counts), "caches": caches()})


def _listed(targets: Sequence[str]) -> Sequence[str]:
    return targets.split(",") if isinstance(targets, str) else targets


def _recorded(work: Callable[[], object], target: Target, threads: Sequence[int]) -> dict[str, Wanted]:
    """What the work asks for on a target, by identity."""
    with _anew(target), default_store().recording() as asked, _threads_restored():
        for count in threads:
            torch.set_num_threads(count)
            work()
        found = dict(asked)
    if on_gpu := next((each for each in found.values() if each.key.target.startswith("cuda")), None):
        raise PackError(f"pack: kernel {on_gpu.name!r} is for a GPU, and packs are for CPUs: run the work on the CPU")
    found = {identity: each for identity, each in found.items() if each.key.target == target.key}
    if not found:
        raise PackError(
            "pack: the work used no kernel: run in it what the other process will, under gsb.enable if need be"
        )
    return found


@contextmanager
def _anew(target: Target) -> Iterator[None]:
    """Inside the block every kernel is chosen anew, for a target and without measured plans, which the other process
    does not know; behind it for this machine again.
    """
    try:
        with (
            compiling_for(target),
            tempfile.TemporaryDirectory(prefix="gsb-") as empty,
            database.using(PlanDatabase(Path(empty) / "plans.json")),
        ):
            in_force.renew()
            forget()
            yield
    finally:
        in_force.renew()
        forget()


@contextmanager
def _threads_restored() -> Iterator[None]:
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _packed(identity: str, name: str, symbol: str, key: str, target: str, library: bytes) -> PackedKernel:
    if not is_library(library):
        raise PackError(
            f"pack: kernel {name!r} was kept as text, without a linker: install ld, gcc or cc, and clear the cache"
        )
    file = f"{target}/{identity[:16]}.so"
    return PackedKernel(identity, name, symbol, key, file, len(library), hashlib.sha256(library).hexdigest())


def _described(name: str, target: Target) -> PackedTarget:
    needs = needs_of(target.machine, target.features, target.sve)
    return PackedTarget(name, target.key, target.machine, needs, asdict(target))
