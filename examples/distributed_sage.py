"""Full-graph GraphSAGE on the parts of a graph, a process each.

python examples/distributed_sage.py cuts a graph and starts torchrun, whose processes run this script again. With a
folder that has been cut: torchrun --nproc-per-node 2 examples/distributed_sage.py
"""

import argparse
import os
import subprocess
import sys
from itertools import pairwise

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import gnn_sparse_backend as gsb


class Sage(torch.nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.own = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in pairwise(widths))
        self.others = torch.nn.ModuleList(torch.nn.Linear(a, b, bias=False) for a, b in pairwise(widths))

    def forward(self, graph, x):
        for own, others in zip(self.own, self.others):
            x = F.relu(own(x) + others(gsb.spmm(graph, x, reduce="mean")))
        return x


def cut(parts, folder, method):
    torch.manual_seed(0)
    labels = torch.randint(4, (1000,))
    graph = gsb.Graph.from_edge_index(torch.randint(1000, (2, 10000)), size=(1000, 1000))
    features = F.one_hot(labels, 16) + torch.randn(1000, 16)
    print(gsb.distributed.partition(graph, parts, folder, method, features=features, labels=labels))


def train(folder, epochs):
    dist.init_process_group("gloo")
    graph = gsb.distributed.DistGraph.load(folder)
    torch.manual_seed(0)
    model = DistributedDataParallel(Sage([16, 32, 4]))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    x, labels = graph.features(), graph.labels()
    for _ in range(epochs):
        total = F.cross_entropy(model(graph, x), labels, reduction="sum")
        loss = gsb.distributed.mean_loss(graph, total, len(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loss = loss.detach() / graph.parts
    dist.all_reduce(loss)
    sent = graph.traffic["spmm"]
    print(f"part {graph.part}: loss after {epochs} epochs: {loss:.3f}, sent {sent.forward + sent.backward} bytes")
    dist.destroy_process_group()


def start(parts, folder):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(parts), __file__]
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*command, "--folder", folder], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--folder", default="out/parts")
    parser.add_argument("--method", default="range", help="metis, where pymetis is installed, cuts fewer edges")
    given = parser.parse_args()
    if "RANK" in os.environ:  # one of those that torchrun started
        train(given.folder, 5)
    else:
        cut(given.parts, given.folder, given.method)
        start(given.parts, given.folder)
