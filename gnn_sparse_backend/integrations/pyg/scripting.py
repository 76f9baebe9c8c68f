"""TorchScript compiles PyG's own functions where it meets ours, or operators, where ``GSB_TORCHSCRIPT`` asks for these.

It runs no Python but calls operators. Each of those here is what ``torch_geometric.utils`` has under its name when the
program runs: ours while PyG is enabled, counted and differentiated as in eager programs, else PyG's. A program with
such an operator is loaded only where this package is imported first; hence it takes a word of the user's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType

import torch
import torch_geometric.utils as utils
from torch import Tensor
from torch.library import Library

from ...config import TORCHSCRIPT
from ...ops.core.library import NAMESPACE
from ..core.refusal import Refusal

# PyTorch 2.4 unwraps such a mark for good: between two programs it calls ``original`` as well.
_UNWRAPS = torch.__version__ < "2.5"

SCRIPTED = Refusal("TorchScript compiles the layer")


def scriptable(function: Callable, original: Callable, *, between: bool = False) -> Callable:
    """``function``, marked so that ``torch.jit.script`` compiles ``original`` for it (``script_if_tracing``).

    ``torch.compile`` traces ``original``, and where that ends a program it calls ``function``. between: that is what
    it is for. TorchScript asks whether there is a mark, ``torch.compile`` whether it is true.
    """
    function.__script_if_tracing_wrapper = not (between and _UNWRAPS)
    function.__original_fn = original
    return function


def overloads_of_originals(original: Callable, compiling: Callable[[Callable], None]) -> Callable:
    """``torch.jit._script._get_overloads`` that finds those of PyG's function when it is asked for those of ours.

    PyG declares overloads of some functions (``gcn_norm``, ``add_self_loops``, ``spmm``). TorchScript looks for them
    before it looks at that mark: it would compile PyG's source in our module, where its names are unknown, and keep
    the outcome for our function alone.

    compiling: is told of each function that is compiled in the place of ours.
    """

    @functools.wraps(original)
    def _get_overloads(obj):
        compiled = getattr(obj, "__original_fn", None)
        if compiled is None:
            return original(obj)
        compiling(compiled)
        return original(compiled)

    return _get_overloads


def scriptable_method(function: FunctionType, original: Callable) -> FunctionType:
    """``function`` in the place of a layer's ``original``, whose source TorchScript then compiles, names and all."""
    names = {**original.__globals__, **function.__globals__}
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return functools.wraps(original)(made)


_LIBRARY = Library("gsb", "FRAGMENT")


def _register(name: str, schema: str) -> None:
    """Have PyTorch know ``torch_geometric.utils.<name>``, as it is at the call, as ``torch.ops.gsb.pyg_<name>``."""
    with NAMESPACE.registering():  # at once: TorchScript loads a program without a look into ``torch.ops``
        _LIBRARY.define(f"pyg_{name}{schema}")
        _LIBRARY.impl(f"pyg_{name}", lambda *given: getattr(utils, name)(*given), "CompositeImplicitAutograd")


_register("scatter", "(Tensor src, Tensor index, int dim, int? dim_size, str reduce) -> Tensor")
_register("segment", "(Tensor src, Tensor ptr, str reduce) -> Tensor")
_register("softmax", "(Tensor src, Tensor? index, Tensor? ptr, int? num_nodes, int dim) -> Tensor")


def compiled_operators() -> dict[Callable, Callable]:
    """Give by function of PyG what TorchScript compiles in its place, and ``torch.compile`` follows to that function.

    It is empty where nobody asks for it.
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
