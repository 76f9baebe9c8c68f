"""Random expressions and schedules for hours: `make fuzz`, or
`python -m tests.tensor.scheduling.fuzz --hours 2 --seed 0`.

Every case has a seed of its own, which is printed with what fails. Failures are made small, printed as a case for
`kept.py`, and written to out/fuzz. Half of the cases are schedules, half are computed in the other ways. Between them
come the programs of the other operators, under schedules for the CPU and, one thread after the other, for a GPU. What
is refused is counted by its words.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.compiler import random_schedules
from tests.tensor.dense_values import accesses
from tests.tensor.scheduling.cases import WAYS, Case
from tests.tensor.scheduling.checks import Refused, check
from tests.tensor.scheduling.drawn import random_case

FOLDER = Path("out/fuzz")


def reason(case: Case, how: Sequence[str]) -> str:
    """Why a case fails, in a line; "" where it does not."""
    try:
        check(case, how)
    except Refused:
        return ""
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
    if case.wanted not in ("dense", None):
        yield replace(case, wanted="dense")
    if case.gradient:
        yield replace(case, gradient=False)
    for name in case.given:
        yield replace(case, given={other: each for other, each in case.given.items() if other != name})
    for expression in _simpler(case.expression):
        names = {name for name, _ in accesses(expression)}
        indices = {index for _, each in accesses(expression) for index in each}
        yield replace(
            case,
            expression=expression,
            formats={name: each for name, each in case.formats.items() if name in names},
            given={name: each for name, each in case.given.items() if name in names},
            sizes={index: size for index, size in case.sizes.items() if index in indices},
        )


def _simpler(expression: str) -> Iterator[str]:
    """The expression with one part of it in the place of what that is a part of."""
    left, equals, right = expression.rpartition(" = ")
    whole = ast.parse(right, mode="eval")
    for node in ast.walk(whole):
        for place, below in ast.iter_fields(node):
            if not isinstance(below, ast.BinOp | ast.UnaryOp | ast.Call):
                continue
            for part in ast.iter_child_nodes(below):
                if isinstance(part, ast.Subscript | ast.BinOp | ast.UnaryOp | ast.Call | ast.Name):
                    setattr(node, place, part)
                    text = ast.unparse(whole)
                    setattr(node, place, below)
                    yield left + equals + re.sub(r",\s+", ",", text)


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


def words(error: Refused) -> str:
    """What a refusal says, without what it quotes."""
    return re.sub(r"\[.*?\]|\(.*?\)|[A-Za-z]?\d+", "", str(error).partition("\n")[0])[:100]


def run(hours: float, seed: int, compiled: int, operators: int = 0, sparse: bool = False) -> int:
    """Try cases of the seeds from `seed` on; gives how many fail.

    compiled: one in so many is compiled too. operators: after so many one of another operator. 0: none. sparse: results
    are stored sparse.
    """
    end, start, count = time.time() + hours * 3600, seed, Counter[str]()
    refusals = Counter[str]()

    def said() -> str:
        names = ("cases", *WAYS, "commands", "refused commands", "refused expressions", "failures")
        return ", ".join(f"{count[name]} {name}" for name in names)

    while time.time() < end:
        choose = random.Random(seed).choice
        if operators and seed % operators == 0 and (why := operator(seed)):
            count["failures"] += 1
            print(f"seed {seed}: {why}", flush=True)
        how = ("stage1", "stage3", "kernel") if compiled and seed % compiled == 0 else ("stage1",)
        case = None
        try:
            case = random_case(choose, sparse=sparse, way=choose(("schedule",) * 3 + WAYS[1:]))
            count[case.way] += 1
            count["commands"] += len(case.commands)
            count["refused commands"] += check(case, how)
        except Refused as error:
            count["refused expressions"] += 1
            refusals[words(error)] += 1
        except Exception as error:  # whatever is raised is what is looked for; a command is refused by ScheduleError
            count["failures"] += 1
            print(f"seed {seed}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
            if case is not None:
                small = shrunk(case, how)
                print(f"    {small!r}", flush=True)
                FOLDER.mkdir(parents=True, exist_ok=True)
                (FOLDER / f"{seed}.txt").write_text(f"{reason(small, how)}\n{small!r}\n{how}\n")
        count["cases"] += 1
        seed += 1
        if count["cases"] % 1000 == 0:
            print(f"{said()}, up to seed {seed}", flush=True)
    print(f"seeds {start} to {seed}: {said()}")
    for why, times in refusals.most_common():
        print(f"{times:7d} {why}")
    return count["failures"]


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
