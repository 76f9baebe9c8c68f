"""What PyG wants of pyg-lib, given by our functions where that is not installed, even if PyG was imported before."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import torch_geometric.typing
from torch import Tensor

from ...deferred import later
from ..core.patch import Patches
from ..core.substitutes.faces import PublicModule

if TYPE_CHECKING:
    from .. import torch_sparse
    from . import classes, ops
else:
    classes, ops = later(__name__, ".classes"), later(__name__, ".ops")
    torch_sparse = later(__name__, "..torch_sparse")

_FLAGS = (
    *("WITH_CPU_HASH_MAP", "WITH_FPS", "WITH_GRACLUS", "WITH_GRID_CLUSTER", "WITH_KNN", "WITH_NEAREST"),
    *("WITH_PYG_LIB", "WITH_RADIUS", "WITH_SPLINE"),
)
"""What PyG knows operators of ``torch.ops.pyg`` and classes by."""


def _spline_basis(*given: Any) -> tuple[Tensor, Tensor]:
    return ops.spline_basis(*given)


def _spline_weighting(*given: Any) -> Tensor:
    return ops.spline_weighting(*given)


def _hash_map(*given: Any) -> Any:
    return classes.CPUHashMap(*given)


class _OfTorchSparse(type):
    """The type of a class that stands for ``torch_sparse.SparseTensor``, which is imported when it is used."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return torch_sparse.SparseTensor(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(torch_sparse.SparseTensor, name)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch_sparse.SparseTensor)


class _SparseTensor(metaclass=_OfTorchSparse):
    pass


_MATRICES = ("loader.graph_saint", "loader.neighbor_sampler", "loader.shadow", "nn.conv.pan_conv", "nn.models.dimenet")
"""Modules of PyG that make sparse matrices of torch-sparse."""
_NAMES = (
    ("torch_geometric.nn.conv.spline_conv", "spline_basis", _spline_basis),
    ("torch_geometric.nn.conv.spline_conv", "spline_weighting", _spline_weighting),
    ("torch_geometric.nn.models.node2vec", "WITH_PYG_LIB", True),
    ("torch_geometric.loader.cluster", "pyg_lib", sys.modules[__name__.rpartition(".")[0]]),
    ("torch_geometric.hash_tensor", "CPUHashMap", _hash_map),
)
"""Globals of PyG's modules that were made when they were imported."""


def is_wanted() -> bool:
    """Whether PyG has no pyg-lib but, maybe, the one that we give."""
    typing = torch_geometric.typing
    if typing.WITH_PYG_LIB:
        return isinstance(typing.pyg_lib, PublicModule)
    return importlib.util.find_spec("pyg_lib") is None or isinstance(sys.modules.get("pyg_lib"), PublicModule)


def install(patches: Patches) -> None:
    """Give PyG our functions until the patches are undone."""
    if not is_wanted():
        return
    for flag in _FLAGS:
        patches.set(torch_geometric.typing, flag, True)
    patches.set(torch_geometric.typing, "WITH_METIS", importlib.util.find_spec("pymetis") is not None)
    for module, name, value in _NAMES:
        if importlib.util.find_spec(module) is not None:  # not in every release
            patches.set(importlib.import_module(module), name, value)
    if torch_geometric.typing.WITH_TORCH_SPARSE:
        return
    for each in _MATRICES:
        patches.set(importlib.import_module(f"torch_geometric.{each}"), "SparseTensor", _SparseTensor)
    patches.set(importlib.import_module("torch_geometric.loader.shadow"), "WITH_TORCH_SPARSE", True)
