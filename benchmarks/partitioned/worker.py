"""One process of several: epochs of GraphSAGE on its part, and where their time goes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gnn_sparse_backend as gsb
from benchmarks.partitioned.graphs import CLASSES
from benchmarks.support.memory import peak
from gnn_sparse_backend.distributed import DistGraph, halo_exchange, mean_loss
from gnn_sparse_backend.distributed.operators import after_halo
from gnn_sparse_backend.ops.core.partitioned import Partitioned

WARM = 2
TIMEOUT = 300


class Layer(nn.Module):
    """The mean of neighbours and the node itself, each times a matrix."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.itself, self.others = nn.Linear(wide, out), nn.Linear(wide, out, bias=False)

    def forward(self, graph, x: Tensor) -> Tensor:
        return self.itself(x) + self.others(gsb.spmm(graph, x, reduce="mean"))


class Attention(nn.Module):
    """GAT's sum of neighbours with learned weights, one head."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.linear, self.ends = nn.Linear(wide, out), nn.Linear(out, 2, bias=False)

    def forward(self, graph, x: Tensor) -> Tensor:
        x = self.linear(x)
        of_rows, of_columns = self.ends(x).unbind(1)
        return gsb.gat_attention(graph, of_rows, of_columns, x)


LAYERS = {"mean": Layer, "attention": Attention}


class WaitsFirst(Partitioned):
    """A part whose operators wait for the halo, and then run on all rows at once; gradients are waited for where they
    are sent. It is there to compare with.
    """

    def __init__(self, part: DistGraph) -> None:
        self.part = part
        exchange, post = part._exchange, part._exchange.post

        def posted(x: Tensor, back: bool):
            sent = post(x, back)
            if back:
                sent.wait(next(iter(exchange.traffic.values())))
            return sent

        exchange.post = posted

    def call(self, operator, arguments):
        return after_halo(self.part, operator, {key: x for key, x in arguments.items() if x is not self})


def run(
    rank: int,
    folder: str,
    count: int,
    threads: int,
    layers: int,
    hidden: int,
    epochs: int,
    delayed: bool,
    shared: bool,
    reuse: bool,
    layer: str,
    overlap: bool,
) -> None:
    """Write what was measured as ``told<rank>.json`` into the folder of the parts.

    delayed: with halos of the epoch before. shared: in memory that processes share, not over the loopback. reuse: with
    ``gsb.reuse_memory``, as while a framework is enabled. overlap: what needs no halo is computed while it travels.
    """
    torch.set_num_threads(threads)
    if reuse:
        gsb.reuse_memory()
    if count > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        store, wait = f"file://{folder}/store", timedelta(seconds=TIMEOUT)
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count, timeout=wait)
    part = DistGraph.load(folder, verify=False, timeout=TIMEOUT, shared_memory=shared)
    graph = part if count > 1 else part.local  # one process needs no parts
    if not overlap:
        graph = WaitsFirst(part)
    x, labels = part.features(), part.labels()
    torch.manual_seed(0)
    widths = [x.shape[1]] + [hidden] * (layers - 1) + [CLASSES]
    model = nn.ModuleList(LAYERS[layer](i, o) for i, o in itertools.pairwise(widths))
    optimiser = torch.optim.Adam(model.parameters())
    parameters = list(model.parameters())

    def epoch() -> dict[str, float]:
        waited = _waited(part)
        if count > 1:
            dist.barrier()
        start = time.perf_counter()
        h = x
        for each in model:
            h = each(graph, h if each is model[0] else torch.relu(h))
        loss = mean_loss(part, cross_entropy(h, labels, reduction="sum"), len(labels))
        optimiser.zero_grad()
        loss.backward()
        computed = time.perf_counter()
        if count > 1:
            flat = torch.cat([p.grad.flatten() for p in parameters])
            dist.all_reduce(flat)
            for p, grad in zip(parameters, flat.div_(count).split([p.numel() for p in parameters])):
                p.grad.copy_(grad.view_as(p))
        reduced = time.perf_counter()
        optimiser.step()
        end = time.perf_counter()
        halo = _waited(part) - waited
        return {"epoch": end - start, "halo": halo, "gradients": reduced - computed, "loss": float(loss.detach())}

    measured = []
    for _ in range(WARM + epochs):
        with part.delayed() if delayed else contextlib.nullcontext():
            measured.append(epoch())
    told = {
        "epochs": measured[WARM:],
        "sent": sum(each.forward + each.backward for each in part.traffic.values()) / (WARM + epochs),
        "wire": _wire(part, layer, widths, epochs) if count > 1 else 0.0,
        "peak": peak(),
        "rows": part.shape[0],
        "edges": part.num_edges,
        "inner": part.inner.num_edges,
        "halo": part.halo_ids.numel(),
    }
    (Path(folder) / f"told{rank}.json").write_text(json.dumps(told), encoding="utf-8")
    if count > 1:
        dist.barrier()
        dist.destroy_process_group()


def _waited(part: DistGraph) -> float:
    return sum(each.waited for each in part.traffic.values())


def _wire(part: DistGraph, layer: str, widths: list[int], times: int) -> float:
    """Seconds of an epoch's exchanges with nothing beside them: forward of each layer, backward but of an input."""
    seconds = []
    if layer == "attention":  # what is sent are a layer's scores and results, which have gradients
        inputs = [torch.zeros(part.shape[1], *width) for out in widths[1:] for width in ((), (out,))]
    else:
        inputs = [torch.zeros(part.shape[1], width) for width in widths[:-1]]
    for x in inputs if layer == "attention" else inputs[1:]:
        x.requires_grad_()
    for _ in range(times):
        total = 0.0
        for x in inputs:
            dist.barrier()
            start = time.perf_counter()
            halo = halo_exchange(part, x, "alone")
            if halo.requires_grad:
                halo.backward(halo.detach())
            total += time.perf_counter() - start
        seconds.append(total)
    return sorted(seconds)[len(seconds) // 2]
