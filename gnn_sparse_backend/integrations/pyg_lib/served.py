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
    from . import ops
else:
    ops = later(__name__, ".ops")

_FLAGS = "WITH_FPS", "WITH_GRACLUS", "WITH_GRID_CLUSTER", "WITH_KNN", "WITH_NEAREST", "WITH_RADIUS", "WITH_SPLINE"
"""What PyG knows operators of ``torch.ops.pyg`` by."""


def _spline_basis(*given: Any) -> tuple[Tensor, Tensor]:
    return ops.spline_basis(*given)


def _spline_weighting(*given: Any) -> Tensor:
    return ops.spline_weighting(*given)


_NAMES = (
    ("torch_geometric.nn.conv.spline_conv", "spline_basis", _spline_basis),
    ("torch_geometric.nn.conv.spline_conv", "spline_weighting", _spline_weighting),
    ("torch_geometric.nn.models.node2vec", "WITH_PYG_LIB", True),
    ("torch_geometric.loader.cluster", "pyg_lib", sys.modules[__name__.rpartition(".")[0]]),
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
        patches.set(importlib.import_module(module), name, value)
