"""What a look needs to know of a layer: how it is called, what it is given, and what it has in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

NODES, EDGES, WIDTH = 11, 40, 4


class Watch:
    """Is told of each tensor that a layer has in between, when it is made.

    act: what is done with it then; what it returns, if anything, goes on in its place. hooked: whether a
    layer of a library is hooked, to know its tensors at all. kept: each of them by name.
    """

    def __init__(self, act: Callable[[Tensor], Tensor | None] | None = None, hooked: bool = False):
        self.act, self.hooked, self.kept = act, hooked or act is not None, {}

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        if self.act is not None:
            other = self.act(tensor)
            tensor = tensor if other is None else other
        self.kept[f"{name} {len(self.kept)}"] = tensor
        return tensor

    @property
    def wanted(self) -> dict[str, Tensor]:
        """Those that have a gradient."""
        return {name: tensor for name, tensor in self.kept.items() if tensor.requires_grad}


@dataclass
class Layer:
    """One layer with its inputs, built anew for each program.

    Attributes:
        inputs: by name, leaves that want gradients; "x" are the features of the nodes.
        forward: called with a watch and the inputs.
        module: what holds the parameters, if there are any.
    """

    inputs: dict[str, Tensor]
    forward: Callable[[Watch, dict[str, Tensor]], Any]
    module: nn.Module | None = None

    def __call__(self, watch: Watch | None = None, **others: Tensor):
        """The results; others: in the place of inputs of these names."""
        return self.forward(watch or Watch(), {**self.inputs, **others})

    @property
    def leaves(self) -> dict[str, Tensor]:
        """Inputs and parameters."""
        return {**self.inputs, **(dict(self.module.named_parameters()) if self.module is not None else {})}


Build = Callable[[], Layer]


def tensors(result) -> list[Tensor]:
    """The floating tensors of a result, in order."""
    if isinstance(result, Tensor):
        return [result] if result.is_floating_point() else []
    items = result.values() if isinstance(result, dict) else result
    return [one for item in items for one in tensors(item)]


def loss_of(result) -> Tensor:
    """A number that depends on each number of the result, of which there is a second derivative."""
    total = 0
    for tensor in tensors(result):
        weights = torch.linspace(0.5, 1.5, tensor.numel(), dtype=tensor.dtype).view(tensor.shape)
        total = total + (tensor * tensor * weights).sum()
    return total


def random_ends() -> tuple[Tensor, Tensor]:
    """Sources and destinations of edges of which some are equal; the last node has none."""
    ends = torch.randint(0, NODES - 1, (2, EDGES), generator=torch.Generator().manual_seed(7))
    return ends[0], ends[1]


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """A leaf that wants a gradient."""
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()
