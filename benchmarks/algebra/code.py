"""How long the kernel of each operation takes to be there, and how large its code is, beside TACO's.

Ours is compiled and called once in a process of its own, with nothing kept from before; what a process loads once for
all kernels is not counted. TACO's is the fastest of its schedules, with the seconds of the C compiler told apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.algebra import contenders, taco
from benchmarks.algebra.contenders import OURS
from benchmarks.algebra.inputs import SMALL, Input
from benchmarks.algebra.problem import OPERATIONS, Place, Problem
from benchmarks.algebra.studies import BALANCED, BY_ROWS, kernel_of
from benchmarks.support import report
from benchmarks.support.cells import Unable

SCHEDULES = {name: schedule for name, schedule in {**BY_ROWS, **BALANCED}.items() if schedule is not None}
"""Those of the studies, which are of SpMV and SpMM."""
CHILD = "-m", "benchmarks.algebra.code"


def places(ops: Sequence[str]) -> list[tuple[Place, str]]:
    """Each operation on each order that it takes, at its first width, with the name of a schedule, if it has any."""
    found = []
    for input in (load(0) for load in SMALL.values()):
        for op in ops:
            if input.order in OPERATIONS[op].expressions:
                place = Place(op, input, OPERATIONS[op].widths[0])
                found += [(place, name) for name in ("", *(SCHEDULES if op in ("spmv", "spmm") else ()))]
    return found


def measure(place: Place, schedule: str) -> dict:
    """Seconds until a kernel was compiled and called once, and bytes of its code, in this process, whose cache is empty
    but for what this compiles first."""
    from gnn_sparse_backend import tensor as st

    problem = Problem(place)
    st.compile("A[i] = B[i] * C[i]", B=st.array(np.ones(3, np.float32)), C=st.array(np.ones(3, np.float32)))
    folder = Path(os.environ["GSB_CACHE_DIR"])
    before = set(folder.rglob("*.so"))
    arrays = {"B": st.array(place.input.csr), "C": st.array(problem.factors[0])} if schedule else {}
    begin = time.perf_counter()
    if schedule:
        kernel_of(SCHEDULES[schedule], place.expression, arrays)(**arrays)
    else:
        contenders.call_of(OURS, problem)()
    seconds = time.perf_counter() - begin
    libraries = sorted(set(folder.rglob("*.so")) - before)
    return {"seconds": seconds, "code_bytes": sum(map(taco.code_bytes, libraries)), "libraries": len(libraries)}


def apart(place: Place, schedule: str) -> dict:
    """What ``measure`` gives in a new process with nothing kept."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *CHILD, place.op, place.input.name, str(place.width), schedule]
        environment = os.environ | {"GSB_CACHE_DIR": folder}
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(told.stdout.splitlines()[-1])


def of_taco(place: Place) -> dict:
    """Of TACO's fastest schedule: its seconds, those of the C compiler, and bytes of machine code."""
    try:
        built = taco.call_of(Problem(place)).built
    except Unable as why:
        return {"unable": str(why)}
    return {"seconds": built.taco_s, "cc_seconds": built.cc_s, "code_bytes": built.code_bytes}


def run(ops: Sequence[str]) -> list[dict]:
    """A dictionary for each kernel."""
    found = []
    for place, schedule in places(ops):
        row = {"op": place.op, "order": place.input.order, "width": place.width, "schedule": schedule}
        found.append({**row, "gsb": apart(place, schedule), "taco": {} if schedule else of_taco(place)})
    return found


def show(rows: Sequence[dict], console: Console) -> None:
    columns = ("order", "width", "gsb, s", "bytes of code", "TACO, s", "its C compiler, s", "bytes of code")
    table = report.table("Until a kernel is there", ("operation", "schedule"), columns)
    for row in rows:
        own, other = row["gsb"], row["taco"]
        seconds = [f"{other[name]:.2f}" if name in other else report.MISSING for name in ("seconds", "cc_seconds")]
        size = f"{other['code_bytes']:,}" if "code_bytes" in other else report.MISSING
        where = row["op"], row["schedule"] or "default", str(row["order"]), str(row["width"])
        table.add_row(*where, f"{own['seconds']:.2f}", f"{own['code_bytes']:,}", *seconds, size)
    console.print(table)
    for reason in dict.fromkeys(row["taco"]["unable"] for row in rows if "unable" in row["taco"]):
        console.print(f"not measured: taco: {reason}", highlight=False)


def _child(op: str, name: str, width: str, schedule: str) -> None:
    given: Input = SMALL[name](0)
    print(json.dumps(measure(Place(op, given, int(width)), schedule)))


if __name__ == "__main__":
    _child(*sys.argv[1:])
