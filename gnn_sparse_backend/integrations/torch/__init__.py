"""What PyTorch itself draws and multiplies on a CPU, faster, while any framework is enabled.

============  ==========================================================================================
module        what it holds
============  ==========================================================================================
``random``    dropouts and ``bernoulli``, with the same bits: which calls are ours
``rectified`` a rectified linear unit and the dropout behind it, one pass on the way back
``products``  ``F.linear`` and products of matrices in half types, where the CPU has no instruction for them
============  ==========================================================================================

Counted under ``torch`` by the names of PyTorch's operators. What is too small to gain, or draws nothing (no training,
p of 0 or 1), is PyTorch's and not counted.

``F.dropout`` and its kind stay as they are: what is replaced is what they call, ``torch._VF.dropout``, where a name
that is set hides PyTorch's. So every module that holds one of them is served, ``torch.compile`` knows them, and what
overrides them (``__torch_function__``) is asked first, as before. ``torch.dropout`` and its kind, which are called by
those names, are replaced there.
"""

from __future__ import annotations

import torch
import torch.nn.functional
from torch import _VF, Tensor
from torch.jit import _builtins

from ...dynamo import DYNAMO, when_imported
from ..core.patch import Patches
from ..traced import install, uninstall
from ..traced.eager_region import look_up_again, run_alone
from . import looks, products
from .random import HOST, bernoulli, bernoulli_, dropout_run, native_dropout
from .rectified import is_small, relu

_patches = Patches()
_DROPOUTS = {
    f"{kind}dropout{inplace}": dropout_run(f"{kind}dropout{inplace}")
    for kind in ("", "alpha_", "feature_", "feature_alpha_")
    for inplace in ("", "_")
}
_PRODUCTS = (
    (torch.nn.functional, "linear", products.linear),
    (torch, "matmul", products.matmul),
    (torch, "mm", products.matmul),
)
_DRAWN = (
    *((owner, name, run) for owner in (_VF, torch) for name, run in _DROPOUTS.items()),
    (torch, "native_dropout", native_dropout),
    (torch, "bernoulli", bernoulli),
    (Tensor, "bernoulli_", bernoulli_),
)
_UNITS = ((torch, "relu", relu),)  # not that of Tensor: subclasses would be told of another function


_PASSES = {"linear": products.linear_passes, "relu": is_small}


def _asking(replaced):
    return [
        (owner, name, HOST.admit(getattr(owner, name), name, run, passes=_PASSES.get(name)))
        for owner, name, run in replaced
    ]


# made once, and kept: TorchScript knows them by where they lie in memory
_DRAWS, _MULTIPLIES = _asking(_DRAWN + _UNITS), _asking(_PRODUCTS)


# Behind a break between layers a unit and a dropout would be compiled each by itself, where neither knows the other.
_BETWEEN_LAYERS = (
    torch.nn.Dropout.forward,
    torch.nn.ReLU.forward,
    torch.nn.functional.dropout,
    torch.nn.functional.relu,
    *(asking for _, name, asking in _DRAWS if name == "relu"),
)


def activate() -> None:
    """Put our draws, and products where they gain, under PyTorch. Nothing if they are there already."""
    if len(_patches):
        return
    gains = not all(map(products.torch_has_products, products.HALF))
    replaced = _DRAWS + _MULTIPLIES if gains else _DRAWS
    for _, name, asking in replaced:
        _builtins._register_builtin(asking, f"aten::{name}")  # TorchScript compiles PyTorch's operator
    for owner, name, asking in replaced:
        _patches.set(owner, name, asking)
    looks.install(_patches)
    looks.install_in_dynamo(_patches)
    install()
    run_alone(*_BETWEEN_LAYERS)


def deactivate() -> None:
    """Put PyTorch's own back."""
    run_alone(*_BETWEEN_LAYERS, as_they_are=False)
    _patches.undo()
    look_up_again()
    uninstall()


def _enter_dynamo() -> None:
    if len(_patches):
        looks.install_in_dynamo(_patches)


when_imported(DYNAMO, _enter_dynamo)
