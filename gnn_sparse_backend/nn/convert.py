"""Models and weights of spconv, torchsparse and MinkowskiEngine, for layers of this package."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import Module

from .from_minkowski import from_minkowski
from .voxels.convolution import Convolution

__all__ = ["LAYOUTS", "from_minkowski", "from_spconv", "from_torchsparse"]

LAYOUTS = ("KRSC", "RSCK")


def from_spconv(state: Mapping[str, Tensor], model: Module, layout: str = "KRSC") -> dict[str, Tensor]:
    """The state of a model of spconv, for ``model.load_state_dict``.

        model.load_state_dict(nn.convert.from_spconv(torch.load("second.pt"), model))

    Args:
        state: by name, where ``model`` has the same names. Weights of its convolutions have a dimension for each axis
            of the kernel; everything else is left as it is.
        model: with ``SubMConv``, ``SparseConv``, ``SparseConvTranspose`` and ``SparseInverseConv`` in the place of
            spconv's layers.
        layout: ``"KRSC"``: (c_out, *kernel, c_in), which spconv 2 saves; ``"RSCK"``: (*kernel, c_in, c_out), of spconv
            1.

    Raises KeyError, ValueError that name the weight that is missing or of another shape.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {LAYOUTS}, got {layout!r}")

    def weight(conv: Convolution, given: Tensor) -> Tensor:
        first = layout == "KRSC"
        kernel, channels = conv.kernel_size, conv.weight.shape[1:]
        wanted = (channels[1], *kernel, channels[0]) if first else (*kernel, *channels)
        _check_shape(given, wanted)
        return (given.movedim(0, -1) if first else given).reshape(conv.weight.shape)

    return _converted(state, model, "weight", weight)


def from_torchsparse(state: Mapping[str, Tensor], model: Module) -> dict[str, Tensor]:
    """The state of a model of torchsparse, for ``model.load_state_dict``.

    Its convolutions have ``kernel`` instead of ``weight``: (offsets, c_in, c_out), or (c_in, c_out) of one offset.
    Offsets are numbered with the first axis fastest if there is an odd number of them, and with the last one fastest
    otherwise.

    Args, raises: as ``from_spconv``.
    """

    def weight(conv: Convolution, given: Tensor) -> Tensor:
        offsets, *channels = conv.weight.shape
        _check_shape(given, tuple(channels) if offsets == 1 and given.dim() == 2 else tuple(conv.weight.shape))
        given = given.reshape(conv.weight.shape)
        if offsets % 2 == 0:
            return given
        order = torch.arange(offsets, device=given.device).reshape(conv.kernel_size[::-1])
        return given[order.permute(*reversed(range(conv.dim))).flatten()]

    return _converted(state, model, "kernel", weight)


def _converted(
    state: Mapping[str, Tensor], model: Module, name: str, weight: Callable[[Convolution, Tensor], Tensor]
) -> dict[str, Tensor]:
    """The state with the weight of every convolution converted, which it has under ``name``."""
    result = dict(state)
    for prefix, module in model.named_modules():
        if not isinstance(module, Convolution):
            continue
        old, new = (f"{prefix}.{each}" if prefix else each for each in (name, "weight"))
        if old not in state:
            raise KeyError(f"{old} is missing, the weight of {module}; there are {sorted(state)}")
        try:
            converted = weight(module, state[old])
        except ValueError as error:
            raise ValueError(f"{old} of {module}: {error}") from None
        del result[old]
        result[new] = converted
    return result


def _check_shape(given: Tensor, wanted: tuple[int, ...]) -> None:
    if tuple(given.shape) != wanted:
        hint = "" if math.prod(given.shape) != math.prod(wanted) else "; is it another layout?"
        raise ValueError(f"expected shape {tuple(wanted)}, got {tuple(given.shape)}{hint}")
