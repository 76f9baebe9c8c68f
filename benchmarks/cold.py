"""Where the time of a first epoch goes while no kernel has ever been compiled: ``python -m benchmarks.cold``.

Three layers of GraphSAGE, GAT and RGCN of PyG, each in fresh processes with an empty cache: processor time, that of the
linker included, by what it is spent on. The graph is small, so that kernels run for next to nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.support import cli, machine, report

MODELS = ("GraphSAGE", "GAT", "RGCN")
PARTS = ("import of TVM", "stages I to III", "passes of TVM", "LLVM", "object code", "linking", "loading", "the rest")
NODES, EDGES, FEATURES, RELATIONS = 20_000, 400_000, 32, 4


def spent() -> float:
    """Seconds of processor time of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Clock:
    """Seconds by part: what is measured within another part is taken from that."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._within: list[str] = []
        self._since = spent()

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._count()
        self._within.append(name)
        try:
            yield
        finally:
            self._count()
            self._within.pop()

    def watch(self, owner: Any, name: str, part: str) -> None:
        """Count the calls of a function of a module or class as a part."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                return function(*args, **kwargs)

        setattr(owner, name, watched)

    def _count(self) -> None:
        now = spent()
        if self._within:
            self.seconds[self._within[-1]] += now - self._since
        self._since = now


def first_epoch(model: str) -> dict:
    """Seconds by part of a first epoch of a model, in this process, beyond those of a second one on another graph."""
    import torch
    import torch_geometric.nn as pyg

    import gnn_sparse_backend as gsb

    torch.manual_seed(0)
    x, index = torch.randn(NODES, FEATURES), torch.randint(NODES, (2, EDGES))
    widths = list(itertools.pairwise((FEATURES, 64, 64, 16)))
    inputs: tuple[torch.Tensor, ...] = (x, index)
    make: Callable[[int, int], torch.nn.Module] = pyg.SAGEConv
    if model == "GAT":
        make = functools.partial(pyg.GATConv, heads=4, concat=False)
    elif model == "RGCN":
        make = functools.partial(pyg.RGCNConv, num_relations=RELATIONS)
        inputs = *inputs, torch.randint(RELATIONS, (EDGES,))
    layers = [make(*width) for width in widths]
    gsb.enable("pyg")

    def epoch() -> None:
        out, *more = inputs
        for layer in layers:
            out = layer(out, *more).relu()
        out.sum().backward()

    clock = Clock()
    with clock.part("import of TVM"):
        from gnn_sparse_backend.compiler import compile as compiling
        from gnn_sparse_backend.compiler.cache.store import KernelStore
        from gnn_sparse_backend.compiler.codegen import build

        build.tvm.IRModule  # noqa: B018  (asked for, TVM is imported)
        build.cpu_pipeline()
    import tvm_ffi

    clock.watch(compiling, "stage3", "stages I to III")
    clock.watch(build, "compiled", "passes of TVM")
    clock.watch(sys.modules["tvm.tirx.build"], "codegen_build", "LLVM")
    clock.watch(tvm_ffi.Module, "write_to_file", "object code")
    clock.watch(build, "link", "linking")
    clock.watch(KernelStore, "_open_entry", "loading")
    begin = time.perf_counter()
    with clock.part("the rest"):
        epoch()
    wall = time.perf_counter() - begin
    inputs = (x, *(each.flip(-1) for each in inputs[1:]))  # other edges: a copy would be known by its content
    again = spent()
    epoch()
    clock.seconds["the rest"] -= spent() - again
    return {"kernels": gsb.compiler.cache.stats().compiles, "wall": wall, **clock.seconds}


def measure(model: str) -> dict:
    """`first_epoch` in a process of its own, without any kernel."""
    with tempfile.TemporaryDirectory(prefix="gsb-cold-") as folder:
        program = f"import json; from benchmarks.cold import first_epoch; print(json.dumps(first_epoch({model!r})))"
        environment = os.environ | {"GSB_CACHE_DIR": f"{folder}/kernels"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
    return json.loads(done.stdout.splitlines()[-1])


def run(models: Sequence[str], processes: int, begin: Callable[[str], None] = lambda model: None) -> list[dict]:
    """A row for each model: that of its runs which took the least."""
    rows = []
    for model in models:
        begin(model)
        runs = [measure(model) for _ in range(processes)]
        rows.append({"model": model, **min(runs, key=total)})
    return rows


def total(row: Mapping) -> float:
    return sum(row[part] for part in PARTS)


def show(rows: Sequence[Mapping], console) -> None:
    table = report.table(
        "Processor time of a first epoch beyond that of a second, s", ("model", "kernels"), (*PARTS, "all")
    )
    for row in rows:
        parts = [f"{row[part]:.2f}" for part in PARTS]
        table.add_row(row["model"], str(row["kernels"]), *parts, f"{total(row):.2f}")
    console.print(table)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = cli.parser(__doc__.splitlines()[0], budget=120.0)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--processes", type=cli.positive_int, default=3, help="of each (default: 3)")
    options = parser.parse_args(argv)
    if options.quick:
        options.models, options.processes = ["GraphSAGE"], 1
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the table, write ``cold.json``."""
    options = arguments(argv)
    console = cli.start(options)
    with report.progress(console, len(options.models)) as begin:
        rows = run(options.models, options.processes, begin)
    show(rows, console)
    results = {"machine": machine.describe(options.threads), "rows": rows}
    console.print(f"written: {machine.write_json(options.out / 'cold.json', results)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
