"""Draws of PyTorch's CPU generators: the same numbers, and the generator where PyTorch would leave it."""

from __future__ import annotations

import math
import threading

import torch
from torch import Generator, Tensor

from ...compiler.cache.bounded import keeping
from ...compiler.cache.fork import own_locks
from ...compiler.compile import compile_loops
from ...compiler.loops.mt19937 import bernoulli_function


class _Turns:
    """A state is taken, advanced and put back by one thread at a time."""

    def __init__(self) -> None:
        own_locks(self)

    def make_locks(self) -> None:
        self.lock = threading.Lock()


_turns = _Turns()


def draw_bernoulli(drawn: Tensor, p: float, generator: Generator | None = None) -> Tensor:
    """Fill ``drawn`` with what ``drawn.bernoulli_(p, generator=generator)`` would, on a CPU where PyTorch draws such
    numbers itself (`torch_draws_so`): u < p, for u = n * 2**-53 of 53 bits of each two words of mt19937. Returns it.

    drawn: (n,) uint8, compact, n >= 1. p: from 0 to 1. generator: of the CPU; None for PyTorch's default one.

    Threads that come here together draw one after the other. A thread that meanwhile draws by PyTorch itself, from the
    same generator, may draw the same numbers.
    """
    generator = torch.default_generator if generator is None else generator
    threshold = math.ceil(math.ldexp(p, 53))
    entry = compile_loops(bernoulli_function).entry
    with _turns.lock:
        state = generator.get_state()
        entry(drawn.shape[0], threshold >> 32, threshold & 0xFFFFFFFF, state.view(torch.int64), drawn)
        generator.set_state(state)
    return drawn


@keeping(1)
def torch_draws_so() -> bool:
    """Whether PyTorch draws Bernoulli numbers here as `draw_bernoulli` does: it leaves them to MKL on processors of
    Intel's. Looked at once, with a generator of its own.
    """
    ours, theirs = Generator(), Generator()
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool):
        for generator in (ours, theirs):
            generator.manual_seed(19937)
            torch.rand(3, generator=generator)  # from the middle of a block, at an odd word
        for p in (0.1, 0.5):
            drawn = draw_bernoulli(torch.empty(1000, dtype=torch.uint8), p, ours)
            expected = torch.ops.aten.bernoulli_.float(torch.empty(1000, dtype=dtype), p, generator=theirs)
            if not torch.equal(drawn, expected.to(torch.uint8)):
                return False
        if not torch.equal(ours.get_state(), theirs.get_state()):
            return False
    return True
