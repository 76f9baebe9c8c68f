"""A process with or without the backend, that times what it is told to."""

from __future__ import annotations

import gc
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

import psutil
import torch

from benchmarks.small import batches, layers


class Cell(NamedTuple):
    """What is measured. graph: "known": one for all calls; "new": one for each. mode: "inference", "step" (with the
    gradients of features and weights) or "training" (a step of `layers.Loop`).
    """

    framework: str
    layer: str
    size: str
    graph: str
    mode: str
    threads: int


ROUND = 0.015
"""Seconds of a turn, about."""


class Measured:
    """A cell in this process: the same weights, graphs and features in every process."""

    def __init__(self, cell: Cell):
        self.cell = cell
        torch.set_num_threads(cell.threads)
        torch.manual_seed(0)
        if cell.mode == "training":
            self.call = layers.Loop(cell.framework, cell.layer)
            self.parameters = []
        else:
            module, self.call = layers.make(cell.framework, cell.layer)
            self.parameters = list(module.parameters())
        self.generator = torch.Generator().manual_seed(1)
        self.known = self.fresh()
        self.calls = 2

    def fresh(self) -> tuple:
        """A new batch, as the framework takes it, and its features."""
        batch = batches.make(self.cell.size, layers.WIDTH, layers.RELATIONS, self.generator)
        return layers.prepare(self.cell.framework, batch), batch.x.requires_grad_(self.cell.mode == "step")

    def first(self) -> list[torch.Tensor]:
        """The numbers of one call, to be compared."""
        prepared, x = self.known
        out = self._run(prepared, x)
        found = [out.detach(), *(p.grad for p in (x, *self.parameters) if p.grad is not None)]
        return [t.clone() for t in found]

    def _run(self, prepared, x: torch.Tensor) -> torch.Tensor:
        if self.cell.mode == "training":
            return self.call(prepared, x)
        if self.cell.mode == "inference":
            with torch.no_grad():
                return self.call(prepared, x)
        for each in (x, *self.parameters):
            each.grad = None
        out = self.call(prepared, x)
        out.sum().backward()
        return out

    def turn(self) -> float:
        """Seconds of a call, in the mean of some; a new batch goes after its call, as those of a loader do."""
        given = [self.known if self.cell.graph == "known" else self.fresh() for _ in range(self.calls)]
        begin = time.perf_counter()
        while given:
            self._run(*given.pop())
        seconds = (time.perf_counter() - begin) / self.calls
        self.calls = max(2, min(200, round(ROUND / seconds)))
        return seconds

    def memory(self, batches: int) -> list[float]:
        """Return by how many bytes the process grew over the last nine tenths of the steps on new batches."""
        process = psutil.Process()
        for _ in range(batches // 10):
            self._run(*self.fresh())
        gc.collect()
        before = process.memory_info().rss
        for _ in range(batches):
            self._run(*self.fresh())
        gc.collect()
        return [process.memory_info().rss, process.memory_info().rss - before]


def work(connection: Connection, framework: str, ours: bool) -> None:
    """Answer until there is nothing more to do: a cell with its first numbers, ``None`` with a turn of it, a number
    with the memory after as many batches.
    """
    from benchmarks.support import cli

    cli.quiet_libraries()
    if ours:
        import gnn_sparse_backend as gsb

        gsb.enable(framework)
    measured = None
    while (asked := connection.recv()) != "end":
        if asked is None:
            connection.send(measured.turn())
        elif isinstance(asked, int):
            connection.send(measured.memory(asked))
        else:
            measured = Measured(Cell(*asked))
            connection.send([t.numpy() for t in measured.first()])
