"""Peak memory of each contender in a cell beyond its operands, in a fresh process for each.

What comes on top of results is told, but contenders are compared by all that a call needs. The high-water mark of
memory that is freed again lags behind by up to 32 pages for each processor (Linux 6.18: of 32 pages touched and
unmapped it saw 21, of 16 one), and one-pass kernels need some 200 KiB beside their results, which is no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.masked import contenders
from benchmarks.masked.problem import Place, Problem
from benchmarks.support import cli, memory


def of_contender(name: str, place: Place, threads: int) -> dict:
    """``memory.of_call`` less the bytes of the results, or ``{"error": reason}``. For a process of its own."""
    cli.set_threads(threads)
    cli.quiet_libraries()
    try:
        call = contenders.call_of(name, Problem(place))
        results: list[int] = []

        def once() -> None:
            results[:] = [x.nbytes for x in call()]

        peak = memory.of_call(once)
    except Exception as error:  # one contender's failure is a result, and must not cost the others theirs
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
    return {"step": max(0, peak["step"] - sum(results)), "held": peak["held"], "results": sum(results)}


def compared(entries: Mapping[str, dict]) -> dict[str, int]:
    """Bytes of each contender's results and of what comes on top, of those that were measured."""
    return {name: entry["step"] + entry["results"] for name, entry in entries.items() if "step" in entry}


def measure(names: Sequence[str], place: Place, threads: int) -> dict[str, dict]:
    found = {}
    for name in names:
        try:
            found[name] = memory.in_child(of_contender, name, place, threads)
        except memory.CannotMeasure as reason:
            found[name] = {"error": str(reason)}
    return found
