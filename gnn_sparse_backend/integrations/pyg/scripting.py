"""TorchScript compiles PyG's own functions where it meets ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType

from torch._dynamo.variables import functions

from ..core.refusal import Refusal

# PyTorch 2.4 unwraps such a mark for good: between two programs it calls ``original`` as well.
_UNWRAPS = not hasattr(functions, "WrapperUserFunctionVariable")

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
