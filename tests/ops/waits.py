"""What would make a GPU wait, noticed on a stand-in: a value of a tensor, or a size that depends on one, asked for in
Python or below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from gnn_sparse_backend.formats import counts

# Functions of Python, and operators of PyTorch, which on a GPU copy to the host.
READING = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__")
SYNCHRONISING = {
    "aten::item",
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::unique_dim",
    "aten::_unique",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::bincount",
    # a tensor of numbers that the host has, which are copied
    "aten::lift_fresh",
}


class Promises(list):
    """(whether it is kept, words) of all that was promised to the GPU instead of being read."""

    def __call__(self, kept: Tensor, words: str) -> None:
        assert kept.dtype == torch.bool and kept.dim() == 0
        self.append((kept, words))

    def broken(self) -> list[str]:
        return [words for kept, words in self if not kept]


def unnoticed(function: Callable, *arguments, **more):
    """What a function of PyTorch gives that was there before it was replaced, and not what a mode would find by its
    name.
    """
    with torch._C.DisableTorchFunction():
        return function(*arguments, **more)


def without_waiting(call: Callable, monkeypatch, sizes: int = 0):
    """The result of a call that asks for no value of a tensor and makes no tensor on a device of its own choice.

    All that it promises to the GPU has to hold. sizes: so many times it asks for sizes that depend on values, neither
    more nor
    fewer: of what is not zero, the sum of repeats, or all that a format reads at once (`formats.counts.read`).
    """
    asked: list[str] = []

    def refuse(*_, **__):
        raise AssertionError("a value was read back")

    def ask(operator: str) -> None:
        asked.append(operator)
        assert len(asked) <= sizes, f"the size of what {operator} gives would be read back"

    def nonzero(x, nonzero=Tensor.nonzero, **more):
        ask("aten::nonzero")
        return unnoticed(nonzero, x, **more)

    def sized(*arguments, repeat=torch.repeat_interleave, tolist=Tensor.tolist, output_size=None, **more):
        repeats = arguments[:2][-1]
        if output_size is None and type(repeats) is not int:
            ask("aten::repeat_interleave")
            (output_size,) = unnoticed(tolist, repeats.sum().reshape(1))  # or it would be read below Python
        return repeat(*arguments, output_size=output_size, **more)

    def read(*values, tolist=Tensor.tolist):
        ask("read")
        return unnoticed(tolist, torch.stack([value.long() for value in values]))

    promises = Promises()
    with (
        monkeypatch.context() as patched,
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile,
    ):
        for name in READING:
            patched.setattr(Tensor, name, refuse)
        for where in (torch, Tensor):
            patched.setattr(where, "nonzero", nonzero)
            patched.setattr(where, "repeat_interleave", sized)
        patched.setattr(torch, "_assert_async", promises)
        patched.setattr(counts, "read", read)
        # what says nothing of its device would be made here, and meet the operands
        with torch.device("meta"):
            result = call()
    found = Counter(event.name for event in profile.events() if event.name in SYNCHRONISING)
    assert found == Counter(name for name in asked if name in SYNCHRONISING), found
    assert len(asked) == sizes, asked
    assert not promises.broken()
    return result
