"""``halo_exchange``: rows of sources go to the processes whose edges come from them, and gradients the way back."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass
class Traffic:
    """Of a layer: bytes that this process sent to others, forward and backward, and seconds that it waited."""

    forward: int = 0
    backward: int = 0
    waited: float = 0.0


@dataclass
class Exchange:
    """Which rows this process sends to which others, and how many it receives.

    Attributes:
        send: rows of this process that others need, by who needs them.
        sends, receives: how many to and from each process.
        group: the processes; None for one alone.
        wire: type that rows have while they travel; None for their own.
        traffic: what was sent, by layer.
        delayed: what the steps of ``DistGraph.delayed`` leave to the next one; None outside of them.
    """

    send: Tensor
    sends: list[int]
    receives: list[int]
    group: Any = None
    wire: torch.dtype | None = None
    traffic: dict[str, Traffic] = field(default_factory=dict)
    delayed: Delayed | None = None

    def start(self, x: Tensor, layer: str) -> Travelling:
        """The halo of ``x``, under way."""
        travelling = Travelling(self, self.traffic.setdefault(layer, Traffic()), x.shape[0], self.delayed)
        if self.delayed is not None:
            travelling.number, self.delayed.count = self.delayed.count, self.delayed.count + 1
        travelling.packed = _Start.apply(x, travelling)
        return travelling

    def post(self, rows: Tensor, back: bool) -> Posted:
        """Send rows, or gradients of rows; nobody waits yet."""
        sends, receives = (self.receives, self.sends) if back else (self.sends, self.receives)
        sent = rows.to(self.wire or rows.dtype).contiguous()
        received = sent.new_empty((sum(receives), *rows.shape[1:]))
        work = None
        if self.group is not None:
            work = dist.all_to_all_single(received, sent, receives, sends, group=self.group, async_op=True)
        return Posted(work, sent, received, rows.dtype)


@dataclass
class Posted:
    """Rows on their way; ``sent`` is held until they have arrived."""

    work: Any
    sent: Tensor
    received: Tensor
    dtype: torch.dtype

    def wait(self, traffic: Traffic) -> Tensor:
        start = time.perf_counter()
        if self.work is not None:
            try:
                self.work.wait()
            except RuntimeError as error:
                raise RuntimeError(
                    f"halo exchange of process {dist.get_rank()}: another process has ended or hangs; look for its "
                    f"error first, and start all of them again from the last checkpoint ({error})"
                ) from error
            self.work = None  # what is delayed may be waited for again
        traffic.waited += time.perf_counter() - start
        return self.received.to(self.dtype)

    @property
    def nbytes(self) -> int:
        return self.sent.numel() * self.sent.element_size()


@dataclass
class Delayed:
    """Rows and gradients that were sent in the step before, by the order of a step's exchanges."""

    count: int = 0
    rows: dict[int, Posted] = field(default_factory=dict)
    grads: dict[int, Posted] = field(default_factory=dict)

    def swap(self, number: int, posted: Posted, back: bool) -> Posted:
        """What was sent in the step before, for what is sent now; in the first step that itself."""
        kept = self.grads if back else self.rows
        before, kept[number] = kept.get(number, posted), posted
        if before.received.shape != posted.received.shape:
            raise ValueError(
                f"DistGraph.delayed: exchange {number} of this step sends {tuple(posted.received.shape)}, but sent "
                f"{tuple(before.received.shape)} in the step before; call the same operators in the same order"
            )
        return before


@dataclass
class Travelling:
    """The halo of an operand, under way; of its gradient on the way back."""

    exchange: Exchange
    traffic: Traffic
    rows: int
    delayed: Delayed | None = None
    number: int = 0
    packed: Any = None
    posted: Any = None

    def wait(self) -> Tensor:
        """(halo, ...) rows of other processes."""
        return _Wait.apply(self.packed, self)

    def post(self, rows: Tensor, back: bool) -> int:
        """Send rows, or gradients; how many bytes that are. What is waited for is that, or is a step older."""
        posted = self.exchange.post(rows, back)
        self.posted = posted if self.delayed is None else self.delayed.swap(self.number, posted, back)
        return posted.nbytes


class _Start(torch.autograd.Function):
    """Its forward sends rows; its backward receives their gradients. Between it and `_Wait` there may be work."""

    @staticmethod
    def forward(ctx, x: Tensor, travelling: Travelling) -> Tensor:
        ctx.travelling = travelling
        packed = x.index_select(0, travelling.exchange.send)
        travelling.traffic.forward += travelling.post(packed, back=False)
        return packed

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, _: Tensor):
        travelling = ctx.travelling
        received = travelling.posted.wait(travelling.traffic)
        travelling.posted = None
        grad = received.new_zeros((travelling.rows, *received.shape[1:]))
        return grad.index_add_(0, travelling.exchange.send, received), None


class _Wait(torch.autograd.Function):
    """Its forward receives rows; its backward sends their gradients, and does not wait: `_Start` does, which autograd
    calls after whatever was computed in between.
    """

    @staticmethod
    def forward(ctx, packed: Tensor, travelling: Travelling) -> Tensor:
        ctx.travelling, ctx.shape = travelling, packed.shape
        received, travelling.posted = travelling.posted.wait(travelling.traffic), None
        return received

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor):
        travelling = ctx.travelling
        travelling.traffic.backward += travelling.post(grad, back=True)
        return grad.new_zeros(()).expand(ctx.shape), None  # what arrives is added where it is needed


def halo_exchange(graph, x: Tensor, layer: str = "halo_exchange") -> Tensor:
    """Rows of the sources that other processes own and edges of this one come from.

    Every process of the graph calls it, in the same order, with operands that need a gradient everywhere or nowhere.

    Args:
        graph: a ``gsb.distributed.DistGraph``.
        x: (own sources, ...) features.
        layer: the name under which ``graph.traffic`` counts what is sent.

    Returns:
        (halo, ...) in the order of ``graph.halo_ids``. Gradients go back to the processes that own the rows, and are
        added there; derivatives of a second order are refused.
    """
    return graph.start(x, layer).wait()
