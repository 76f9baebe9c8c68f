"""What all layers have in common: they are counted by their names."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch.nn import Module

from ...core import counters
from ..sparse_tensor import SparseTensor
from ..tensor import Tensor

FRAMEWORK = "MinkowskiEngine"
_HERE = __name__.removesuffix(".layers.base")


class MinkowskiModuleBase(Module):
    """A layer, which ``status()`` counts by the name of its class, or of that of MinkowskiEngine which it derives
    from.
    """

    _counted: ClassVar[str] = "MinkowskiModuleBase"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith(_HERE):
            cls._counted = cls.__name__

    def _count(self) -> None:
        if not torch.compiler.is_compiling():
            counters.ours(FRAMEWORK, self._counted)

    def _checked(self, x: object, dimension: int | None = None) -> SparseTensor:
        """``x``, a SparseTensor with this number of axes; counts the call."""
        if not isinstance(x, SparseTensor):
            raise TypeError(f"{type(self).__name__} takes a MinkowskiEngine.SparseTensor, got {type(x).__name__}")
        if dimension is not None and x.D != dimension:
            raise ValueError(f"{type(self).__name__} is for {dimension} axes (dimension={dimension}), got {x.D}")
        self._count()
        return x

    def _rows(self, x: object) -> Tensor:
        """``x``, a SparseTensor or TensorField; counts the call."""
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{type(self).__name__} takes a MinkowskiEngine.SparseTensor or TensorField, got {type(x).__name__}"
            )
        self._count()
        return x
