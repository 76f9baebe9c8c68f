"""Train on sampled mini-batches in two processes, the next batch drawn while one is used; DDP averages the gradients.

python examples/sampled_ddp.py starts torchrun, whose processes run this script again.
"""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import gnn_sparse_backend as gsb

NODES, EDGES, FEATURES, HIDDEN, CLASSES, BATCH, EPOCHS = 5_000, 50_000, 16, 32, 4, 128, 3


class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        widths = ((FEATURES, HIDDEN), (HIDDEN, CLASSES))
        self.own = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in widths)
        self.others = torch.nn.ModuleList(torch.nn.Linear(a, b, bias=False) for a, b in widths)

    def forward(self, graph, x):
        for own, others in zip(self.own, self.others):
            x = F.relu(own(x) + others(gsb.spmm(graph, x, reduce="mean")))
        return x


def train():
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same graph in all processes
    labels = torch.randint(CLASSES, (NODES,))
    x = F.one_hot(labels, FEATURES) + torch.randn(NODES, FEATURES)
    graph = gsb.Graph.from_edge_index(torch.randint(NODES, (2, EDGES)), size=(NODES, NODES))
    model = DistributedDataParallel(Sage())
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def made(seeds):
        sample = gsb.sample_neighbors(graph, seeds, [10, 5], seed=int(seeds[0]))
        return sample.graph, x.index_select(0, sample.nodes), labels[seeds]

    losses = []
    for epoch in range(EPOCHS):
        order = torch.randperm(NODES, generator=torch.Generator().manual_seed(epoch))
        mine = order[rank::count][: NODES // count].split(BATCH)  # as many batches in each process
        total = 0.0
        for block, features, wanted in gsb.Prefetcher(mine, made):
            loss = F.cross_entropy(model(block, features)[: len(wanted)], wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(mine)
        dist.all_reduce(mean := torch.tensor(total) / count)
        losses.append(mean.item())
    assert losses[-1] < losses[0]
    same = next(model.parameters()).detach().clone()
    dist.broadcast(same, 0)
    assert torch.equal(same, next(model.parameters())), "all processes have the same weights"
    print(f"process {rank}: {len(mine)} batches an epoch, loss {losses[0]:.3f} and then {losses[-1]:.3f}")
    dist.destroy_process_group()


def start(processes):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*torchrun, __file__], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout)


if __name__ == "__main__":
    train() if "RANK" in os.environ else start(2)  # torchrun sets it
