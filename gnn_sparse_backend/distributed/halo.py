"""``halo_exchange``: rows of sources go to the processes whose edges come from them, and gradients the way back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..ops.core.operator import Operator, recorded
from ..ops.core.partitioned import check_part
from .shared import SharedMemory


@dataclass
class Traffic:
    """Traffic of a layer: bytes that this process sent, forward and backward, and seconds that it waited."""

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
        shared: memory that all processes map, where they are on one machine.
        traffic: what was sent, by layer.
        delayed: what the steps of ``DistGraph.delayed`` leave to the next one; None outside of them.
    """

    send: Tensor
    sends: list[int]
    receives: list[int]
    group: Any = None
    wire: torch.dtype | None = None
    shared: SharedMemory | None = None
    traffic: dict[str, Traffic] = field(default_factory=dict)
    delayed: Delayed | None = None

    def start(self, x: Tensor, layer: str) -> Travelling:
        """The halo of ``x``, under way."""
        travelling = Travelling(self, self.traffic.setdefault(layer, Traffic()), self.delayed)
        if self.delayed is not None:
            travelling.number, self.delayed.count = self.delayed.count, self.delayed.count + 1
        travelling.packed, travelling.own = recorded(_START, travelling, (x,))
        return travelling

    def post(self, x: Tensor, back: bool) -> Posted:
        """Send the rows of ``x`` that others need, or back gradients of theirs; nobody waits yet."""
        sends, receives = (self.receives, self.sends) if back else (self.sends, self.receives)
        shape, dtype = (sum(sends), *x.shape[1:]), self.wire or x.dtype
        posted = Posted(self, receives, (sum(receives), *x.shape[1:]), dtype, x.dtype)
        posted.nbytes = prod(shape) * dtype.itemsize
        near = self.shared is not None and x.is_cpu
        rows, told = self.shared.write(shape, dtype, sends) if near else (x.new_empty(shape, dtype=dtype), None)
        if not back and dtype == x.dtype:
            torch.index_select(x, 0, self.send, out=rows)
        else:
            rows.copy_(x if back else x.index_select(0, self.send))
        if near:
            posted.told, posted.sent = torch.empty_like(told), told
            posted.work = dist.all_to_all_single(posted.told, told, group=self.group, async_op=True)
        else:
            posted.rows, posted.sent = rows.new_empty(posted.shape), rows
            if self.group is not None:
                posted.work = dist.all_to_all_single(
                    posted.rows, rows, receives, sends, group=self.group, async_op=True
                )
        return posted


@dataclass
class Posted:
    """Rows on their way: ``receives`` of each process.

    sent: what has to be held until it has arrived. told: where rows lie in memory that is shared. rows: what arrives by
    itself.
    """

    exchange: Exchange
    receives: list[int]
    shape: tuple[int, ...]
    wire: torch.dtype
    dtype: torch.dtype
    nbytes: int = 0
    work: Any = None
    sent: Tensor | None = None
    told: Tensor | None = None
    rows: Tensor | None = None

    def wait(self, traffic: Traffic) -> Tensor:
        """The rows; what is delayed may be waited for again."""
        start = time.perf_counter()
        try:
            if self.work is not None:
                self.work.wait()
            if self.rows is None:
                self.rows = self._read()
        except (RuntimeError, OSError) as error:
            raise RuntimeError(
                f"halo exchange of process {dist.get_rank()}: another process has ended or hangs; look for its "
                f"error first, and start all of them again from the last checkpoint ({error})"
            ) from error
        self.work = self.sent = None
        traffic.waited += time.perf_counter() - start
        return self.rows.to(self.dtype)

    def _read(self) -> Tensor:
        """Rows that others have written into memory that is shared: as they lie, if they are of one process."""
        found = [
            self.exchange.shared.read(process, told, (count, *self.shape[1:]), self.wire)
            for process, (count, told) in enumerate(zip(self.receives, self.told.tolist()))
            if count and prod(self.shape)
        ]
        return found[0] if len(found) == 1 else torch.cat([torch.empty((0, *self.shape[1:]), dtype=self.wire), *found])


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
        if before.shape != posted.shape:
            raise ValueError(
                f"DistGraph.delayed: exchange {number} of this step sends {posted.shape}, but sent "
                f"{before.shape} in the step before; call the same operators in the same order"
            )
        return before


@dataclass
class Travelling:
    """The halo of an operand, under way; of its gradient on the way back."""

    exchange: Exchange
    traffic: Traffic
    delayed: Delayed | None = None
    number: int = 0
    packed: Any = None
    own: Any = None
    posted: Any = None

    def wait(self) -> Tensor:
        """(halo, ...) rows of other processes; once."""
        packed, self.packed, self.own = self.packed, None, None  # whose history holds this: a circle of large tensors
        received: Tensor = recorded(_WAIT, self, (packed,))
        return received

    def post(self, x: Tensor, back: bool) -> int:
        """Send rows, or gradients; how many bytes that are. What is waited for is that, or is a step older."""
        posted = self.exchange.post(x, back)
        self.posted = posted if self.delayed is None else self.delayed.swap(self.number, posted, back)
        return posted.nbytes


def _send(travelling: Travelling, operands, attributes) -> tuple[Tensor, Tensor]:
    """Send rows. The second result is ``x`` itself, for an operator of own rows whose gradient is a tensor that nobody
    else has: what is received is added to that.
    """
    (x,) = operands
    travelling.traffic.forward += travelling.post(x, back=False)
    return x.new_zeros(()).expand(travelling.exchange.send.numel(), *x.shape[1:]), x


@once_differentiable
def _receive_gradients(travelling: Travelling, attributes, saved, memo, needed, _: Tensor, grad: Tensor) -> Tensor:
    received, travelling.posted = travelling.posted.wait(travelling.traffic), None
    return grad.index_add_(0, travelling.exchange.send, received)


def _receive(travelling: Travelling, operands, attributes) -> Tensor:
    received, travelling.posted = travelling.posted.wait(travelling.traffic), None
    return received


@once_differentiable
def _send_gradients(travelling: Travelling, attributes, saved, shape, needed, grad: Tensor) -> Tensor:
    """Send gradients, and do not wait: `_receive_gradients` does, which autograd calls after whatever was computed in
    between.
    """
    travelling.traffic.backward += travelling.post(grad, back=True)
    return grad.new_zeros(()).expand(shape)  # what arrives is added where it is needed


def _step(name: str, run: Callable[..., Any], gradient: Callable[..., Tensor]) -> Operator:
    """A step of which the gradient reads the shape of what it was given, and holds nothing."""
    return Operator(
        name,
        run,
        lambda *call: [gradient(*call)],
        saved=lambda attributes, operands, results: ((), operands[0].shape),
    )


_START = _step("halo_start", _send, _receive_gradients)
_WAIT = _step("halo_wait", _receive, _send_gradients)
"""Between the two there may be work."""


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
    check_part("halo_exchange", graph)
    return graph.start(x, layer).wait()
