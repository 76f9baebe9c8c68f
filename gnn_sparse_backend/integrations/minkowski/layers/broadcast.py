"""Features of batches at all of their sites."""

from __future__ import annotations

import torch

from ..enums import BroadcastMode
from ..sparse_tensor import SparseTensor
from .base import MinkowskiModuleBase


class MinkowskiBroadcast(MinkowskiModuleBase):
    """The features of each site's batch, which ``MinkowskiGlobalPooling`` returns, instead of its own."""

    def forward(self, input: SparseTensor, input_glob: SparseTensor) -> SparseTensor:
        """Broadcast ``input_glob``, which has a row for each batch, to the sites of ``input``."""
        x = self._checked(input)
        index, segments = x._manager.at_origin(x._key)
        pooled = input_glob.F
        if len(pooled) != segments.num_segments:
            raise ValueError(
                f"{type(self).__name__}: expected features of {segments.num_segments} batches, as "
                f"MinkowskiGlobalPooling returns them, got {tuple(pooled.shape)}"
            )
        return x._like(self._combined(x.F, pooled[index]))

    def _combined(self, features: torch.Tensor, of_batch: torch.Tensor) -> torch.Tensor:
        return of_batch

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class MinkowskiBroadcastAddition(MinkowskiBroadcast):
    """The features of each site's batch are added to its own."""

    operation_type = BroadcastMode.ELEMENTWISE_ADDITON

    def _combined(self, features: torch.Tensor, of_batch: torch.Tensor) -> torch.Tensor:
        return features + of_batch


class MinkowskiBroadcastMultiplication(MinkowskiBroadcast):
    """A site's features are multiplied by those of its batch."""

    operation_type = BroadcastMode.ELEMENTWISE_MULTIPLICATION

    def _combined(self, features: torch.Tensor, of_batch: torch.Tensor) -> torch.Tensor:
        return features * of_batch


class MinkowskiBroadcastConcatenation(MinkowskiBroadcast):
    """The features of each site's batch come behind its own."""

    def _combined(self, features: torch.Tensor, of_batch: torch.Tensor) -> torch.Tensor:
        return torch.cat([features, of_batch], 1)
