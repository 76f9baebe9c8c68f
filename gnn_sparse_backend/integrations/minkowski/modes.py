"""Whether new tensors share one coordinate manager."""

from __future__ import annotations

from .enums import SparseTensorOperationMode
from .manager import CoordinateManager

_mode = SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER
_global_manager: CoordinateManager | None = None


def set_sparse_tensor_operation_mode(operation_mode: SparseTensorOperationMode) -> None:
    """Say whether tensors that are made of coordinates share the global coordinate manager, which they then do until
    ``clear_global_coordinate_manager()``.
    """
    global _mode
    _mode = SparseTensorOperationMode(operation_mode)


def sparse_tensor_operation_mode() -> SparseTensorOperationMode:
    """The mode that is set."""
    return _mode


def global_coordinate_manager() -> CoordinateManager | None:
    """The manager that new tensors share, if there is one yet."""
    return _global_manager


def set_global_coordinate_manager(coordinate_manager: CoordinateManager | None) -> None:
    """Have new tensors share this manager."""
    global _global_manager
    _global_manager = coordinate_manager


def clear_global_coordinate_manager() -> None:
    """Forget all sites that new tensors share."""
    set_global_coordinate_manager(None)


def manager_for(D: int, **options: object) -> CoordinateManager:
    """The manager of a tensor that is made of coordinates."""
    if _mode == SparseTensorOperationMode.SEPARATE_COORDINATE_MANAGER:
        return CoordinateManager(D, **options)  # type: ignore[arg-type]
    if _global_manager is None:
        set_global_coordinate_manager(CoordinateManager(D, **options))  # type: ignore[arg-type]
    assert _global_manager is not None
    if _global_manager.D != D:
        raise ValueError(
            f"the global coordinate manager has sites of {_global_manager.D} axes, not of {D}: "
            "MinkowskiEngine.clear_global_coordinate_manager() makes room for others"
        )
    return _global_manager
