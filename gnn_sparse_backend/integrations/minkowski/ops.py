"""Functions of several tensors, and between sparse and dense ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from .field import TensorField
from .layers.base import MinkowskiModuleBase
from .layers.pointwise import MinkowskiLinear
from .sparse_tensor import SparseTensor
from .tensor import COORDINATE_KEY_DIFFERENT_ERROR, Tensor

__all__ = [
    "MinkowskiLinear",
    "MinkowskiStackCat",
    "MinkowskiStackMean",
    "MinkowskiStackSum",
    "MinkowskiStackVar",
    "MinkowskiToDenseTensor",
    "MinkowskiToFeature",
    "MinkowskiToSparseTensor",
    "cat",
    "dense_coordinates",
    "mean",
    "to_sparse",
    "to_sparse_all",
    "var",
]
T = TypeVar("T", bound=Tensor)


def cat(*tensors: Any) -> Any:
    """Tensors of the same rows, one's channels behind the other's: given as several, or as a list."""
    return _of_rows(tensors, lambda features: torch.cat(features, -1))


def _sum(*tensors: Any) -> Any:
    """The sum of tensors of the same rows."""
    return _of_rows(tensors, lambda features: sum(features[1:], features[0]))


def mean(*tensors: Any) -> Any:
    """The mean of tensors of the same rows."""
    return _of_rows(tensors, lambda features: torch.stack(features).mean(0))


def var(*tensors: Any) -> Any:
    """The variance of tensors of the same rows, with the number of tensors below."""
    return _of_rows(tensors, lambda features: torch.stack(features).var(0, correction=0))


def _of_rows(tensors: Sequence[Any], compute: Callable[[list[torch.Tensor]], torch.Tensor]) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        (tensors,) = tensors
    if len(tensors) < 2 or not all(isinstance(x, Tensor) and type(x) is type(tensors[0]) for x in tensors):
        raise TypeError(
            "expected at least two SparseTensors, or two TensorFields, got "
            f"{', '.join(type(x).__name__ for x in tensors) or 'none'}"
        )
    first = tensors[0]
    for x in tensors[1:]:
        if not first._same_key(x):
            raise ValueError(
                f"{COORDINATE_KEY_DIFFERENT_ERROR}, got {first._key} and {x._key}; MinkowskiUnion and + join sites"
            )
    return first._like(compute([x.F for x in tensors]))


def dense_coordinates(shape: Sequence[int]) -> torch.Tensor:
    """(cells of all batches, 1 + D) int32 the coordinates of a dense tensor (batches, channels, *cells)."""
    axes = [torch.arange(int(size), dtype=torch.int32) for size in (shape[0], *shape[2:])]
    if len(axes) < 2:
        raise ValueError(f"expected the shape of a dense tensor (batches, channels, *cells), got {tuple(shape)}")
    return torch.cartesian_prod(*axes)


def to_sparse(
    x: torch.Tensor, format: str | None = None, coordinates: Any = None, device: torch.device | str | None = None
) -> SparseTensor:
    """The cells of a dense tensor that are not zero in every channel. Gradients flow to it.

    format: a letter for each dimension, ``B`` first, ``C`` for the channels and others for axes; None: ``BCX...``.
    coordinates: has no effect.
    """
    if x.dim() < 3:
        raise ValueError(f"to_sparse: expected (batches, channels, *cells), got {tuple(x.shape)}")
    words = "BC" + "X" * (x.dim() - 2) if format is None else format
    if len(words) != x.dim() or words[0] != "B" or words.count("B") != 1 or words.count("C") != 1:
        raise ValueError(
            f"to_sparse: format must have a letter for each of {x.dim()} dimensions, B first, got {words!r}"
        )
    cells = x.movedim(words.index("C"), -1)
    there = (cells.detach() != 0).any(-1).nonzero()
    return SparseTensor(cells[tuple(there.unbind(1))], there.int(), device=device)


def to_sparse_all(dense_tensor: torch.Tensor, coordinates: torch.Tensor | None = None) -> SparseTensor:
    """All cells of a dense tensor (batches, channels, *cells), zeros among them. Gradients flow to it.

    coordinates: ``dense_coordinates`` of its shape, if they are at hand.
    """
    if coordinates is None:
        coordinates = dense_coordinates(dense_tensor.shape)
    features = dense_tensor.movedim(1, -1).reshape(-1, dense_tensor.shape[1])
    return SparseTensor(features, coordinates.to(features.device))


class MinkowskiToSparseTensor(MinkowskiModuleBase):
    """A sparse tensor of a dense one, or of a field: all cells, or, with ``remove_zeros`` and ``coordinates`` as in
    MinkowskiEngine, those that are not zero.
    """

    def __init__(self, remove_zeros: bool = True, coordinates: torch.Tensor | None = None) -> None:
        super().__init__()
        self.remove_zeros, self.coordinates = remove_zeros, coordinates

    def forward(self, input: TensorField | torch.Tensor) -> SparseTensor:
        self._count()
        if isinstance(input, TensorField):
            return input.sparse()
        if self.remove_zeros and self.coordinates is not None:
            return to_sparse(input)
        return to_sparse_all(input, self.coordinates)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MinkowskiToDenseTensor(MinkowskiModuleBase):
    """``SparseTensor.dense(shape)``, the tensor alone."""

    def __init__(self, shape: torch.Size | None = None) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, input: SparseTensor) -> torch.Tensor:
        return self._checked(input).dense(self.shape)[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MinkowskiToFeature(MinkowskiModuleBase):
    """The features."""

    def forward(self, x: Tensor) -> torch.Tensor:
        return self._rows(x).F


class MinkowskiStackCat(nn.Sequential):
    """Modules side by side: ``cat`` of what each makes of the input."""

    def forward(self, x: Any) -> Any:
        return cat([module(x) for module in self])


class MinkowskiStackSum(nn.Sequential):
    """Modules side by side: the sum of what each makes of the input."""

    def forward(self, x: Any) -> Any:
        return _sum([module(x) for module in self])


class MinkowskiStackMean(nn.Sequential):
    """Modules side by side: the mean of what each makes of the input."""

    def forward(self, x: Any) -> Any:
        return mean([module(x) for module in self])


class MinkowskiStackVar(nn.Sequential):
    """Modules side by side: the variance of what each makes of the input."""

    def forward(self, x: Any) -> Any:
        return var([module(x) for module in self])
