"""What TorchScript compiles in the place of PyG's reductions, where ``GSB_TORCHSCRIPT`` asks for it.

TorchScript runs no Python but calls operators. Each operator here is what ``torch_geometric.utils`` has under its name
when the program runs: ours while PyG is enabled, counted and differentiated as in eager programs, else PyG's. A program
with such an operator is loaded only where this package is imported first; hence it takes a word of the user's.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch_geometric.utils as utils
from torch import Tensor
from torch.library import Library

from ...config import TORCHSCRIPT

_LIBRARY = Library("gsb", "FRAGMENT")


def _register(name: str, schema: str) -> None:
    """Have PyTorch know ``torch_geometric.utils.<name>``, as it is at the call, as ``torch.ops.gsb.pyg_<name>``."""
    _LIBRARY.define(f"pyg_{name}{schema}")
    _LIBRARY.impl(f"pyg_{name}", lambda *given: getattr(utils, name)(*given), "CompositeImplicitAutograd")


_register("scatter", "(Tensor src, Tensor index, int dim, int? dim_size, str reduce) -> Tensor")
_register("segment", "(Tensor src, Tensor ptr, str reduce) -> Tensor")
_register("softmax", "(Tensor src, Tensor? index, Tensor? ptr, int? num_nodes, int dim) -> Tensor")


def compiled_operators() -> dict[Callable, Callable]:
    """By function of PyG what TorchScript compiles in its place, and ``torch.compile`` follows to that function.

    None where nobody asks for it.
    """
    if not TORCHSCRIPT.get():
        return {}
    # no globals, which are replaced wherever they are functions of PyG
    pyg_scatter, pyg_segment, pyg_softmax = utils.scatter, utils.segment, utils.softmax

    def scatter(src: Tensor, index: Tensor, dim: int = 0, dim_size: int | None = None, reduce: str = "sum") -> Tensor:
        if torch.jit.is_scripting():
            return torch.ops.gsb.pyg_scatter(src, index, dim, dim_size, reduce)
        return pyg_scatter(src, index, dim, dim_size, reduce)

    def segment(src: Tensor, ptr: Tensor, reduce: str = "sum") -> Tensor:
        if torch.jit.is_scripting():
            return torch.ops.gsb.pyg_segment(src, ptr, reduce)
        return pyg_segment(src, ptr, reduce)

    def softmax(
        src: Tensor,
        index: Tensor | None = None,
        ptr: Tensor | None = None,
        num_nodes: int | None = None,
        dim: int = 0,
    ) -> Tensor:
        if torch.jit.is_scripting():
            return torch.ops.gsb.pyg_softmax(src, index, ptr, num_nodes, dim)
        return pyg_softmax(src, index, ptr, num_nodes, dim)

    return {pyg_scatter: scatter, pyg_segment: segment, pyg_softmax: softmax}
