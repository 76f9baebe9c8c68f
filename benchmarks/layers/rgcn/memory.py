"""Peak memory of the relational network beyond its inputs and outputs, in a fresh process for each contender."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

import psutil

from benchmarks.layers.rgcn.graphs import RelationalGraph
from benchmarks.layers.rgcn.models import Network, context_of
from benchmarks.support import cli, memory

# of what is free when the process begins, for its data
SHARE = 0.8


def network_memory(
    contender: str,
    graph: RelationalGraph,
    widths: Sequence[int],
    modes: Sequence[str],
    threads: int,
    longest: float,
    seed: int = 0,
) -> list[dict]:
    """For each width and mode ``memory.of_call`` less the bytes of the results, or ``{"error": reason}``.

    For a process of its own, which gets no more memory than is free: an allocation beyond fails, and costs nothing.
    After a call of more than ``longest`` seconds, or one that fails, the wider ones are left out.
    """
    cli.set_threads(threads)
    cli.quiet_libraries()
    limit = int(SHARE * psutil.virtual_memory().available)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    found, stopped = {}, {}
    for features in sorted(widths):
        for mode in modes:
            if mode in stopped:
                found[features, mode] = {"error": stopped[mode]}
                continue
            begin = time.perf_counter()
            entry = found[features, mode] = _measure(contender, graph, features, mode, seed)
            if "error" in entry:
                stopped[mode] = f"{entry['error']} (at F = {features})"
            elif time.perf_counter() - begin > 2 * longest:
                stopped[mode] = f"too slow: more than {longest:g} s a call at F = {features}"
    return [found[features, mode] for features in widths for mode in modes]


def _measure(contender: str, graph: RelationalGraph, features: int, mode: str, seed: int) -> dict:
    try:
        call = getattr(Network(contender, graph, features, seed), mode)
        results = []

        def once() -> None:
            results[:] = [y.nbytes for y in call()]

        with context_of(contender)():
            found = memory.of_call(once)
    except (MemoryError, RuntimeError) as error:  # torch's is a RuntimeError
        memory.release()
        if "alloc" in str(error) or isinstance(error, MemoryError):
            return {"error": "does not fit the memory"}
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    return {"step": max(0, found["step"] - sum(results)), "held": found["held"], "results": sum(results)}


def measure(
    names: Sequence[str],
    graph: RelationalGraph,
    widths: Sequence[int],
    modes: Sequence[str],
    threads: int,
    longest: float,
) -> dict[tuple[int, str], dict[str, dict]]:
    """``{(width, mode): {contender: entry}}``."""
    cells = [(features, mode) for features in widths for mode in modes]
    found: dict[tuple[int, str], dict[str, dict]] = {cell: {} for cell in cells}
    for name in names:
        try:
            entries = memory.in_child(network_memory, name, graph, widths, modes, threads, longest)
        except memory.CannotMeasure as reason:
            entries = [{"error": str(reason)}] * len(cells)
        for cell, entry in zip(cells, entries):
            found[cell][name] = entry
    return found
