"""Peak memory of each layer beyond its inputs and outputs, in a fresh process for each contender."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.layers.sparse_conv import clouds, contenders
from benchmarks.support import cli, memory


def layer_memory(name: str, place: clouds.Place, modes: Sequence[str], threads: int, depth: int = 18) -> list[dict]:
    """For each layer and mode ``memory.of_call`` less the bytes of the results, or ``{"error": reason}``. For a process
    of its own.
    """
    cli.set_threads(threads)
    cli.quiet_libraries()
    found = []
    for layer in clouds.layers(place.cloud(), depth):
        for mode in modes:
            if reason := contenders.refusal(name, mode):
                found.append({"error": reason})
                continue
            try:
                call, _ = contenders.call_of(name, layer, mode)
                results: list[int] = []

                def once(call=call, results=results) -> None:
                    results[:] = [y.nbytes for y in call()]

                peak = memory.of_call(once)
            except Exception as error:  # one layer's failure is a result, and must not cost the others theirs
                found.append({"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"})
                continue
            held = max(0, peak["step"] - sum(results))
            found.append({"step": held, "held": peak["held"], "results": sum(results)})
    return found


def measure(
    names: Sequence[str],
    place: clouds.Place,
    cells: Sequence[tuple],
    modes: Sequence[str],
    threads: int,
    depth: int = 18,
) -> dict[tuple, dict[str, dict]]:
    """``{(layer in words, mode): {contender: entry}}``. cells: the keys, in the order of the layers and modes."""
    found: dict[tuple, dict[str, dict]] = {cell: {} for cell in cells}
    for name in names:
        try:
            entries = memory.in_child(layer_memory, name, place, modes, threads, depth)
        except memory.CannotMeasure as reason:
            entries = [{"error": str(reason)}] * len(cells)
        for cell, entry in zip(cells, entries):
            found[cell][name] = entry
    return found
