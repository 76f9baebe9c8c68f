"""One trainer: DGL's loader, and on each of its batches the same model with the backend off and on.

``python -m models.dgl_engine.trainer JOB RANK``. The two models start alike, see the same batches, have optimisers of
their own under DDP, and take turns of a few batches.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import timedelta

import dgl
import torch
import torch.distributed as dist
from dgl.dataloading import DistNodeDataLoader, NeighborSampler
from dgl.distributed import DistGraph, node_split
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import gnn_sparse_backend as gsb
from models.dgl_engine import machines, networks
from models.dgl_engine.job import NAME, Job

TURN = 4
"""Steps that a model takes before the other one has its turn: switching the backend empties what it keeps."""


class Twin:
    """A model and its optimiser. seconds, losses: of its part of every step."""

    def __init__(self, model: nn.Module, backend: bool, lr: float) -> None:
        self.model, self.backend = DistributedDataParallel(model), backend
        self.optimiser = torch.optim.Adam(model.parameters(), lr)
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def turn(self, batches: list[bytes]) -> None:
        """A step on each of some batches. They are read anew, since a block keeps what was derived of it."""
        with gsb.enabled("dgl") if self.backend else contextlib.nullcontext():
            for batch in batches:
                self._step(*pickle.loads(batch))

    def _step(self, blocks: list[dgl.DGLGraph], x: Tensor, y: Tensor) -> None:
        dist.barrier()
        start = time.perf_counter()
        loss = cross_entropy(self.model(blocks, x), y)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.seconds.append(time.perf_counter() - start)
        of_all = loss.detach().double()
        dist.all_reduce(of_all)
        self.losses.append(float(of_all) / dist.get_world_size())


class Parts:
    """Seconds of the parts of a step that are DGL's."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"sampling": [], "features": []}

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - start)


def train(job: Job, graph: DistGraph) -> dict:
    nodes = node_split(graph.ndata["train"], graph.get_partition_book(), force_even=True)
    count = torch.tensor([len(nodes) // job.batch, -int(graph.ndata["y"][nodes].max())])
    dist.all_reduce(count, dist.ReduceOp.MIN)  # DDP wants as many steps, and as many classes, of all
    per_epoch, classes = int(count[0]), 1 - int(count[1])
    if per_epoch < 1:
        raise ValueError(f"batches of {job.batch} are more than the {len(nodes)} training nodes of a trainer")
    dtype = getattr(torch, job.dtype)
    widths = [graph.ndata["x"].shape[1]] + [job.hidden] * (len(job.fanouts) - 1) + [classes]

    def twin(backend: bool) -> Twin:
        torch.manual_seed(job.seed)
        relations = [] if job.model == "sage" else list(graph.etypes)
        made = networks.SAGE(widths) if job.model == "sage" else networks.RGCN(relations, widths)
        return Twin(made.to(dtype), backend, job.lr)

    twins, parts = [twin(False), twin(True)], Parts()
    sampler = NeighborSampler(list(job.fanouts))
    loader = DistNodeDataLoader(graph, nodes, sampler, batch_size=job.batch, shuffle=True, drop_last=True)
    batches, left = iter(loader), per_epoch
    for turn, first in enumerate(range(0, job.steps, TURN)):
        ready = []
        for _ in range(first, min(first + TURN, job.steps)):
            if left == 0:
                batches, left = iter(loader), per_epoch
            left -= 1
            with parts.timed("sampling"):
                inputs, seeds, blocks = next(batches)
            with parts.timed("features"):
                x, y = graph.ndata["x"][inputs].to(dtype), graph.ndata["y"][seeds]
            ready.append(pickle.dumps((blocks, x, y)))
        for each in twins if turn % 2 else reversed(twins):
            each.turn(ready)
    counted = [row for row in gsb.status().rows if row.framework == "dgl"]
    return {
        "seconds": parts.seconds | {"off": twins[0].seconds, "on": twins[1].seconds},
        "losses": {"off": twins[0].losses, "on": twins[1].losses},
        "ours": sum(row.ours for row in counted),
        "fallbacks": sum(sum(row.fallbacks.values()) for row in counted),
        "part": int(graph.get_partition_book().partid),
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    job, rank = Job.read(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(job.threads)
    dgl.utils.set_num_threads(job.threads)
    torch.manual_seed(job.seed + rank)
    dgl.distributed.initialize(job.ip_config)
    os.environ["GLOO_SOCKET_IFNAME"] = machines.INTERFACE if job.separate else "lo"
    where = machines.address(0) if job.separate else "127.0.0.1"
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://{where}:{job.port}",
        rank=rank,
        world_size=job.world,
        timeout=timedelta(seconds=job.timeout),
    )
    told = train(job, DistGraph(NAME, part_config=job.part_config))
    (job.path / f"trainer{rank}.json").write_text(json.dumps(told), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    try:
        main()
    except BaseException:  # DGL would wait at the exit for all other clients
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
