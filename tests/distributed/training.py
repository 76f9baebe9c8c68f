"""Trainings on parts, in the functions that processes run, and the same in one process by dense matrices."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed import DistGraph, Dropout, halo_exchange, mean_loss

from . import cases

STEPS, NODES = 6, 23


class Net(nn.Module):
    """Two sums with matrices, and dropout that knows nodes by their numbers."""

    def __init__(self, rows: Tensor, p: float) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = (nn.Parameter(torch.randn(4, 4).double() / 8) for _ in range(2))
        self.dropout = Dropout(rows, p, seed=3)

    def forward(self, added, x: Tensor) -> Tensor:
        """added: a function that sums neighbours."""
        return added(self.dropout(torch.tanh(added(x) @ self.first)) @ self.second)


def inputs() -> Tensor:
    return torch.randn(NODES, 4, generator=torch.Generator().manual_seed(2)).double()


class Training:
    """A net and Adam on this process's part, or on the whole graph."""

    def __init__(self, graph, p: float = 0.0) -> None:
        self.graph, self.part = graph, graph if isinstance(graph, DistGraph) else None
        self.rows = self.part.row_ids if self.part else torch.arange(NODES)
        self.net = Net(self.rows, p)
        self.optimiser = torch.optim.Adam(self.net.parameters(), 0.05)
        self.x = inputs()[self.rows]

    def step(self) -> None:
        out = self.net(lambda x: gsb.spmm(self.graph, x), self.x)
        total = (out**2).sum()
        loss = mean_loss(self.part, total, len(out)) if self.part else total / len(out)
        self.optimiser.zero_grad()
        loss.backward()
        if self.part and self.part.group is not None:
            for parameter in self.net.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= self.part.parts
        self.optimiser.step()

    def save(self, path: Path) -> None:
        torch.save({"net": self.net.state_dict(), "optimiser": self.optimiser.state_dict()}, path)

    def load(self, path: Path) -> None:
        kept = torch.load(path)
        self.net.load_state_dict(kept["net"])
        self.optimiser.load_state_dict(kept["optimiser"])

    def equals(self, wanted: dict[str, Tensor]) -> None:
        for name, told in wanted.items():
            torch.testing.assert_close(self.net.state_dict()[name], told, rtol=1e-10, atol=1e-10, msg=name.__add__)


def alone(steps: int, p: float) -> dict[str, Tensor]:
    training = Training(cases.whole("square"), p)
    for _ in range(steps):
        training.step()
    return training.net.state_dict()


def some_steps(rank: int, folder: Path, first: int, last: int, checkpoint: Path, p: float) -> None:
    """Steps from ``first`` to ``last``, from a checkpoint and into it; they are those of one process."""
    training = Training(DistGraph.load(folder), p)
    if first:
        training.load(checkpoint)
    for _ in range(first, last):
        training.step()
    training.equals(alone(last, p))
    if rank == 0:
        training.save(checkpoint)


class Stale(torch.autograd.Function):
    """inner @ x + outer @ (x of the step before), and the same of gradients."""

    @staticmethod
    def forward(ctx, x, inner, outer, kept, number):
        ctx.given = inner, outer, kept, number
        before, kept["x", number] = kept.get(("x", number), x), x.detach()
        return inner @ x + outer @ before

    @staticmethod
    def backward(ctx, grad):
        inner, outer, kept, number = ctx.given
        before, kept["grad", number] = kept.get(("grad", number), grad), grad
        return inner.T @ grad + outer.T @ before, None, None, None, None


def delayed_halos(rank: int, folder: Path) -> None:
    """Steps with halos of the step before, against dense matrices; in between and behind them exact ones."""
    part, whole = DistGraph.load(folder), cases.whole("square")
    training, kept = Training(part), {}
    dense = torch.zeros(NODES, NODES).double()
    dense.index_put_(tuple(_ends(whole)), torch.ones(whole.num_edges).double(), accumulate=True)
    owner = torch.arange(NODES) * part.parts // NODES
    near = owner[:, None] == owner
    net = Net(torch.arange(NODES), 0.0)
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    for _ in range(STEPS):
        numbers = iter(range(2))
        out = net(lambda x: Stale.apply(x, dense * near, dense * ~near, kept, next(numbers)), inputs())  # noqa: B023
        optimiser.zero_grad()
        (out**2).sum().div(NODES).backward()
        optimiser.step()
        with part.delayed():
            training.step()
        training.equals(net.state_dict())
        ids = torch.arange(NODES).double()
        assert torch.equal(halo_exchange(part, ids[part.column_ids]).long(), part.halo_ids)
    exact = alone(STEPS, 0.0)["first"]
    assert part.parts == 1 or (net.first - exact).abs().max() > 1e-4
    with contextlib.suppress(ValueError), part.delayed():
        gsb.spmm(part, torch.ones(part.shape[1], 7).double())
        raise AssertionError("another width in the place of the first exchange")


def _ends(graph: gsb.Graph) -> tuple[Tensor, Tensor]:
    counts = graph.indptr.diff().long()
    return torch.arange(NODES).repeat_interleave(counts), graph.indices.long()


def rounded_on_the_wire(rank: int, folder: Path) -> None:
    """bfloat16 on the wire: own rows keep all bits, halos and their gradients have eight; half the bytes."""
    part = DistGraph.load(folder, wire=torch.bfloat16)
    x = torch.randn(NODES, 5, generator=torch.Generator().manual_seed(1))
    own = x[part.column_ids].requires_grad_()
    halo = halo_exchange(part, own)
    assert halo.dtype == torch.float32 and torch.equal(halo, x[part.halo_ids].bfloat16().float())
    halo.sum().backward()
    counts = torch.bincount(torch.cat(_all(part.halo_ids)), minlength=NODES)[part.column_ids]
    assert torch.equal(own.grad, counts[:, None].float().expand(-1, 5))
    traffic = part.traffic["halo_exchange"]
    assert (traffic.forward, traffic.backward) == part.predicted_bytes(5, torch.float32)
    assert traffic.forward == part._exchange.send.numel() * 5 * 2
    whole = gsb.spmm(cases.whole("square"), x)[part.row_ids]
    torch.testing.assert_close(gsb.spmm(part, own.detach()), whole, rtol=2**-8, atol=2**-5)


def _all(ids: Tensor) -> list[Tensor]:
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, ids)
    return found


def under_torchrun() -> None:
    """What torchrun starts: process 1 ends in the third step of the first start; the next goes on from a checkpoint."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    folder = Path(os.environ["FOLDER"])
    checkpoint = folder / "checkpoint.pt"
    training = Training(DistGraph.load(folder / "parts"), 0.3)
    if checkpoint.exists():
        training.load(checkpoint)
    first = int(training.net.dropout.calls)
    for step in range(first, STEPS):
        if step == 2 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            dist.barrier()
            if dist.get_rank() == 1:
                os._exit(3)
        training.step()
        if dist.get_rank() == 0:
            training.save(checkpoint)
        dist.barrier()
    training.equals(alone(STEPS, 0.3))
    (folder / f"ended{dist.get_rank()}").write_text(f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {first}")
    dist.destroy_process_group()


if __name__ == "__main__":
    under_torchrun()
