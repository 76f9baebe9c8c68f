"""``SparseTensor`` and ``PointTensor`` of torchsparse."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .utils.shapes import Axes, make_ntuple
from .utils.tensor_cache import TensorCache, new_cache
from .utils.to_dense import to_dense

_allow_negative_coordinates = False


def get_allow_negative_coordinates() -> bool:
    """Whether layers take negative coordinates."""
    return _allow_negative_coordinates


def set_allow_negative_coordinates(allow_negative_coordinates: bool) -> None:
    """Have layers take negative coordinates, which the convention of 2.1 otherwise refuses."""
    global _allow_negative_coordinates
    _allow_negative_coordinates = bool(allow_negative_coordinates)


class SparseTensor:
    """Features at integer coordinates of a grid with three axes.

    Args:
        feats: (N, C) features.
        coords: (N, 4) int32: the batch, then a cell along each axis (``conventions`` has the other order).
        stride: how many cells of the finest grid a cell is, an int or one for each axis.
        spatial_range: None, or (batches, and the cells of a bounded grid along each axis).

    ``feats``, ``coords`` and ``stride`` are also ``F``, ``C`` and ``s``. Nothing is checked until a layer takes the
    tensor, since arrays of NumPy and labels come in one, too.
    """

    def __init__(
        self, feats: Tensor, coords: Tensor, stride: Axes = 1, spatial_range: Sequence[int] | None = None
    ) -> None:
        self.feats = feats
        self.coords = coords
        self.stride = make_ntuple(stride, ndim=3)
        self.spatial_range = None if spatial_range is None else make_ntuple(spatial_range, ndim=4)
        self._caches = new_cache()

    def like(self, feats: Tensor) -> SparseTensor:
        """Return other features at the same sites, with the same caches."""
        made = SparseTensor(feats, self.coords, self.stride, self.spatial_range)
        made._caches = self._caches
        return made

    @property
    def F(self) -> Tensor:
        return self.feats

    @F.setter
    def F(self, feats: Tensor) -> None:
        self.feats = feats

    @property
    def C(self) -> Tensor:
        return self.coords

    @C.setter
    def C(self, coords: Tensor) -> None:
        self.coords = coords

    @property
    def s(self) -> tuple[int, ...]:
        return self.stride

    @s.setter
    def s(self, stride: Axes) -> None:
        self.stride = make_ntuple(stride, ndim=3)

    @property
    def cmaps(self) -> dict[Any, Any]:
        """Coordinates by stride, of this tensor and those that it came from."""
        return self._caches.cmaps

    @cmaps.setter
    def cmaps(self, cmaps: dict[Any, Any]) -> None:
        self._caches.cmaps = cmaps

    @property
    def kmaps(self) -> dict[Any, Any]:
        """How strided layers came from one stride to the next."""
        return self._caches.kmaps

    @kmaps.setter
    def kmaps(self, kmaps: dict[Any, Any]) -> None:
        self._caches.kmaps = kmaps

    def to(self, device: Any, non_blocking: bool = True) -> SparseTensor:
        """Move features and coordinates, in this tensor itself."""
        self.coords = self.coords.to(device, non_blocking=non_blocking)
        self.feats = self.feats.to(device, non_blocking=non_blocking)
        return self

    def cpu(self) -> SparseTensor:
        return self.to("cpu")

    def cuda(self) -> SparseTensor:
        return self.to("cuda")

    def half(self) -> SparseTensor:
        """Convert the features of this tensor itself to float16."""
        self.feats = self.feats.half()
        return self

    def detach(self) -> SparseTensor:
        """Detach the features of this tensor itself from what they were computed from."""
        self.coords, self.feats = self.coords.detach(), self.feats.detach()
        return self

    def dense(self) -> Tensor:
        """(batches, X, Y, Z, C), the ``spatial_range`` and the channels; zeros where there is no site. Raises
        ValueError without a range, or for a site outside of it.
        """
        if self.spatial_range is None:
            raise ValueError("dense() wants a tensor with a spatial_range: (batches, X, Y, Z) of the result")
        return to_dense(self.feats, self.coords, self.spatial_range)

    def _with(self, other: object, operation: Callable[[Any, Any], Tensor], reverse: bool = False) -> SparseTensor:
        if isinstance(other, SparseTensor):
            check_same_sites("arithmetic", self, other)
            other = other.feats
        elif not isinstance(other, (int, float, Tensor)):
            return NotImplemented
        return self.like(operation(other, self.feats) if reverse else operation(self.feats, other))

    def __add__(self, other: object) -> SparseTensor:
        return self._with(other, operator.add)

    def __radd__(self, other: object) -> SparseTensor:
        return self._with(other, operator.add, True)

    def __sub__(self, other: object) -> SparseTensor:
        return self._with(other, operator.sub)

    def __rsub__(self, other: object) -> SparseTensor:
        return self._with(other, operator.sub, True)

    def __mul__(self, other: object) -> SparseTensor:
        return self._with(other, operator.mul)

    def __rmul__(self, other: object) -> SparseTensor:
        return self._with(other, operator.mul, True)

    def __truediv__(self, other: object) -> SparseTensor:
        return self._with(other, operator.truediv)

    def __repr__(self) -> str:
        shape, kind = tuple(self.feats.shape), str(self.feats.dtype)
        return f"SparseTensor(feats {shape} of {kind}, stride {self.stride}, spatial_range {self.spatial_range})"


class PointTensor:
    """Features of points at floating coordinates, with what voxels found for them: ``F``, ``C``, ``idx_query``,
    ``weights`` and ``additional_features``, which code of torchsparse 1.4 fills.
    """

    def __init__(
        self,
        feats: Tensor,
        coords: Tensor,
        idx_query: dict[Any, Any] | None = None,
        weights: dict[Any, Any] | None = None,
    ) -> None:
        self.F, self.C = feats, coords
        self.idx_query = {} if idx_query is None else idx_query
        self.weights = {} if weights is None else weights
        self.additional_features: dict[str, dict[Any, Any]] = {"idx_query": {}, "counts": {}}

    def to(self, device: Any, non_blocking: bool = True) -> PointTensor:
        """Move features and coordinates, in this tensor itself."""
        self.F = self.F.to(device, non_blocking=non_blocking)
        self.C = self.C.to(device, non_blocking=non_blocking)
        return self

    def cuda(self) -> PointTensor:
        return self.to("cuda")

    def detach(self) -> PointTensor:
        """Detach features and coordinates of this tensor itself."""
        self.F, self.C = self.F.detach(), self.C.detach()
        return self

    def __add__(self, other: PointTensor) -> PointTensor:
        made = PointTensor(self.F + other.F, self.C, self.idx_query, self.weights)
        made.additional_features = self.additional_features
        return made


def check_tensor(what: str, x: object) -> SparseTensor:
    """``x``, which is a ``SparseTensor`` of features."""
    if not isinstance(x, SparseTensor) or not isinstance(x.feats, Tensor) or not isinstance(x.coords, Tensor):
        held = f" of {type(x.feats).__name__} and {type(x.coords).__name__}" if isinstance(x, SparseTensor) else ""
        raise TypeError(f"{what} takes a torchsparse.SparseTensor of tensors, got {type(x).__name__}{held}")
    return x


def check_same_sites(what: str, *tensors: SparseTensor) -> None:
    """All tensors have the same coordinates in the same order, at one stride."""
    first = tensors[0]
    for x in tensors[1:]:
        if first.stride != x.stride or first.coords.shape != x.coords.shape:
            raise ValueError(f"{what} wants tensors on the same sites, got {first} and {x}")
        if first.coords is x.coords or torch.equal(first.coords, x.coords):
            continue
        at = int((first.coords != x.coords).any(1).nonzero()[0])
        raise ValueError(
            f"{what} wants tensors on the same sites in the same order, but site {at} is {first.coords[at].tolist()} "
            f"in one and {x.coords[at].tolist()} in another; torchsparse.generative_add adds on all sites of both"
        )


__all__ = ["PointTensor", "SparseTensor", "TensorCache"]
