"""``Tensor``: what sparse tensors and tensor fields have in common, features of rows that a manager knows."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .key import CoordinateMapKey
from .manager import CoordinateManager

if TYPE_CHECKING:
    from typing_extensions import Self

COORDINATE_MANAGER_DIFFERENT_ERROR = (
    "tensors must share one coordinate manager: give coordinate_manager=x.coordinate_manager to the one that is made "
    "later, or set_sparse_tensor_operation_mode(SparseTensorOperationMode.SHARE_COORDINATE_MANAGER)"
)
COORDINATE_KEY_DIFFERENT_ERROR = "tensors must have one coordinate_map_key"


class Tensor:
    """Features at rows that a coordinate manager has under a key.

    Attributes: F, C: (N, channels) features, and (N, 1 + D) coordinates, the batch first. D: number of axes.
    """

    _F: torch.Tensor
    _C: torch.Tensor | None
    _manager: CoordinateManager

    @property
    def _key(self) -> CoordinateMapKey:
        raise NotImplementedError

    def _like(self, features: torch.Tensor) -> Self:
        """Other features at the same rows."""
        raise NotImplementedError

    def _take(self, key: CoordinateMapKey) -> None:
        """Be at the rows of another key."""

    def _at(self, key: CoordinateMapKey) -> torch.Tensor:
        raise NotImplementedError

    @property
    def coordinate_key(self) -> CoordinateMapKey:
        return self._key

    @property
    def coordinate_manager(self) -> CoordinateManager:
        return self._manager

    @property
    def tensor_stride(self) -> list[int]:
        return self._key.get_tensor_stride()

    @property
    def coordinates(self) -> torch.Tensor:
        """(N, 1 + D) the batch first, of this tensor alone."""
        if self._C is None:
            self._C = self._at(self._key)
        return self._C

    @property
    def C(self) -> torch.Tensor:
        """``coordinates``."""
        return self.coordinates

    @property
    def features(self) -> torch.Tensor:
        """(N, channels)."""
        return self._F

    @property
    def F(self) -> torch.Tensor:
        """``features``."""
        return self._F

    @property
    def D(self) -> int:
        """Number of axes."""
        return self._manager.D

    @property
    def dimension(self) -> int:
        """``D``."""
        return self.D

    @property
    def decomposition_permutations(self) -> list[torch.Tensor]:
        """The rows of each batch, from the first to the last."""
        return self._manager.origin_map(self._key)[1]

    _batchwise_row_indices = decomposition_permutations
    _sorted_batchwise_row_indices = decomposition_permutations

    @property
    def decomposed_coordinates(self) -> list[torch.Tensor]:
        """(N_b, D) of each batch."""
        return [self.C[rows, 1:] for rows in self.decomposition_permutations]

    @property
    def decomposed_features(self) -> list[torch.Tensor]:
        """(N_b, channels) of each batch."""
        return [self._F[rows] for rows in self.decomposition_permutations]

    @property
    def decomposed_coordinates_and_features(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Both, in one order."""
        return self.decomposed_coordinates, self.decomposed_features

    def coordinates_at(self, batch_index: int) -> torch.Tensor:
        """(N_b, D) of one batch."""
        return self.C[self.decomposition_permutations[batch_index], 1:]

    def features_at(self, batch_index: int) -> torch.Tensor:
        """(N_b, channels) of one batch."""
        return self._F[self.decomposition_permutations[batch_index]]

    def coordinates_and_features_at(self, batch_index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Both, in one order."""
        return self.coordinates_at(batch_index), self.features_at(batch_index)

    @property
    def requires_grad(self) -> bool:
        return self._F.requires_grad

    def requires_grad_(self, requires_grad: bool = True) -> None:
        """Ask for the gradient of the features."""
        self._F.requires_grad_(requires_grad)

    def float(self) -> Self:
        """Convert the features, in place."""
        self._F = self._F.float()
        return self

    def double(self) -> Self:
        """Convert the features, in place."""
        self._F = self._F.double()
        return self

    def detach(self) -> Self:
        """Detach the features, in place."""
        self._F = self._F.detach()
        return self

    def size(self) -> torch.Size:
        return self._F.size()

    @property
    def shape(self) -> torch.Size:
        return self._F.shape

    @property
    def device(self) -> torch.device:
        return self._F.device

    @property
    def dtype(self) -> torch.dtype:
        return self._F.dtype

    def get_device(self) -> int:
        return self._F.get_device()

    def __len__(self) -> int:
        return len(self._F)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(\n  coordinates={self.C}\n  features={self.F}\n  coordinate_map_key={self._key}\n"
            f"  coordinate_manager={self._manager}  spatial dimension={self.D})"
        )

    def _same_key(self, other: Tensor) -> bool:
        """Whether two tensors have the same rows. Raises ValueError where they are of two managers."""
        if self._manager is not other._manager:
            raise ValueError(COORDINATE_MANAGER_DIFFERENT_ERROR)
        return self._key == other._key

    def _joined(self, other: Self, compute: Callable[[Any, Any], torch.Tensor]) -> Self:
        """Computed with a tensor of other rows."""
        raise ValueError(f"{COORDINATE_KEY_DIFFERENT_ERROR}, got {self._key} and {other._key}")

    def _with(self, other: object, compute: Callable[[Any, Any], torch.Tensor]) -> Self:
        if isinstance(other, Tensor):
            if type(other)._like is not type(self)._like:
                raise TypeError(f"cannot compute with a {type(self).__name__} and a {type(other).__name__}")
            if not self._same_key(other):
                return self._joined(other, compute)  # type: ignore[arg-type]
            return self._like(compute(self._F, other._F))
        if not isinstance(other, (int, float, torch.Tensor)):
            return NotImplemented
        return self._like(compute(self._F, other))

    def _set(self, other: object, compute: Callable[[Any, Any], torch.Tensor]) -> Self:
        """Compute, and be the result."""
        found = self._with(other, compute)
        if found is NotImplemented:
            return found
        if not found._key == self._key:  # what was known of the coordinates that were given is so no longer
            for name in ("unique_index", "inverse_mapping"):
                vars(self).pop(name, None)
        self._F, self._C = found._F, None
        self._take(found._key)
        return self

    def __add__(self, other: object) -> Self:
        return self._with(other, operator.add)

    def __sub__(self, other: object) -> Self:
        return self._with(other, operator.sub)

    def __mul__(self, other: object) -> Self:
        return self._with(other, operator.mul)

    def __truediv__(self, other: object) -> Self:
        return self._with(other, operator.truediv)

    def __pow__(self, other: object) -> Self:
        return self._with(other, operator.pow)

    def __radd__(self, other: object) -> Self:
        return self._with(other, lambda x, y: y + x)

    def __rsub__(self, other: object) -> Self:
        return self._with(other, lambda x, y: y - x)

    def __rmul__(self, other: object) -> Self:
        return self._with(other, lambda x, y: y * x)

    def __rtruediv__(self, other: object) -> Self:
        return self._with(other, lambda x, y: y / x)

    def __iadd__(self, other: object) -> Self:
        return self._set(other, operator.add)

    def __isub__(self, other: object) -> Self:
        return self._set(other, operator.sub)

    def __imul__(self, other: object) -> Self:
        return self._set(other, operator.mul)

    def __itruediv__(self, other: object) -> Self:
        return self._set(other, operator.truediv)

    def __neg__(self) -> Self:
        return self._like(-self._F)


def check_features(features: object, what: str) -> None:
    """Features are a matrix."""
    if not isinstance(features, torch.Tensor) or features.dim() != 2:
        found = tuple(features.shape) if isinstance(features, torch.Tensor) else type(features).__name__
        raise ValueError(f"{what}: features must be a tensor of shape (N, channels), got {found}")
