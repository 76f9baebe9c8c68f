"""Random schedules for hours: `make fuzz`, or `python -m tests.tensor.scheduling.fuzz --hours 2 --seed 0`.

Every case has a seed of its own, which is printed with what fails. Failures are made small, printed as a case for
`kept.py`, and written to out/fuzz. Between statements of tensor algebra come the programs of the other operators, under
schedules for the CPU and, one thread after the other, for a GPU.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.compiler import random_schedules
from tests.tensor.scheduling.cases import Case, check, random_case

FOLDER = Path("out/fuzz")


def reason(case: Case, how: Sequence[str]) -> str:
    """Why a case fails, in a line; "" where it does not."""
    try:
        check(case, how)
    except Exception as error:  # whatever is raised is what is looked for
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


def shrunk(case: Case, how: Sequence[str]) -> Case:
    """The smallest case found that fails in the same way."""
    kind = reason(case, how).partition(":")[0]
    while True:
        smaller = next((each for each in _smaller(case) if reason(each, how).partition(":")[0] == kind), None)
        if smaller is None:
            return case
        case = smaller


def _smaller(case: Case) -> Iterator[Case]:
    for n in range(len(case.commands)):
        yield replace(case, commands=(*case.commands[:n], *case.commands[n + 1 :]))
    for index, size in case.sizes.items():
        for less in (0, 1, size // 2, size - 1):
            if 0 <= less < size:
                yield replace(case, sizes={**case.sizes, index: less})
    for name, format in case.formats.items():
        if format != "dense":
            yield replace(case, formats={**case.formats, name: "dense"})
    if case.wanted != "dense":
        yield replace(case, wanted="dense")


def operator(seed: int) -> str:
    """Why the program of an operator fails under a random schedule; "" where it does not."""
    choose = random.Random(seed).choice
    name, index_dtype = choose(sorted(random_schedules.CASES)), choose(("int32", "int64"))
    schedule = random_schedules.random_schedule(choose, random_schedules.program_of(name, index_dtype))
    try:
        random_schedules.check(name, index_dtype, seed, schedule)
    except Exception as error:  # as above
        return f"{name}, {index_dtype}, {schedule!r}: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


def run(hours: float, seed: int, compiled: int, operators: int = 0, sparse: bool = False) -> int:
    """Try cases of the seeds from `seed` on; gives how many fail.

    compiled: one in so many is compiled too. operators: after so many one of another operator. 0: none. sparse: results
    are stored sparse.
    """
    end, failed, legal, tried, start = time.time() + hours * 3600, 0, 0, 0, seed
    while time.time() < end:
        if operators and seed % operators == 0 and (why := operator(seed)):
            failed += 1
            print(f"seed {seed}: {why}", flush=True)
        how = ("stage1", "stage3", "kernel") if compiled and seed % compiled == 0 else ("stage1",)
        try:
            case = random_case(random.Random(seed).choice, sparse=sparse)
        except Exception as error:  # a command failed otherwise than by refusing
            print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
            failed, seed = failed + 1, seed + 1
            continue
        why = reason(case, how)
        if why:
            failed += 1
            small = shrunk(case, how)
            print(f"seed {seed}: {why}\n    {small!r}", flush=True)
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / f"{seed}.txt").write_text(f"{why}\n{small!r}\n{how}\n")
        legal, tried, seed = legal + len(case.commands), tried + 1, seed + 1
        if tried % 1000 == 0:
            print(f"{tried} cases, {legal} commands, {failed} failures, up to seed {seed}", flush=True)
    print(f"seeds {start} to {seed}: {tried} cases, {legal} commands, {failed} failures")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--compiled", type=int, default=50, help="one case in so many is compiled; 0: none")
    parser.add_argument("--operators", type=int, default=10, help="one case of other operators to so many; 0: none")
    parser.add_argument("--sparse", action="store_true", help="results are stored sparse, and mostly put together")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:  # kernels that nobody wants again
        os.environ["GSB_CACHE_DIR"] = cache
        raise SystemExit(1 if run(given.hours, given.seed, given.compiled, given.operators, given.sparse) else 0)


if __name__ == "__main__":
    main()
