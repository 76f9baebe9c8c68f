"""Layers of MinkowskiEngine, the original's or a face's, as layers of this package with their weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Module

from ..structures.coordinates import Cross, Offsets
from .voxels import convolution, norms, pointwise, pooling


def from_minkowski(model: Module) -> Module:
    """A copy of a model in which every layer of MinkowskiEngine is the layer of this package that computes the same,
    with its weights.

        layers = nn.convert.from_minkowski(torch.nn.Sequential(ME.MinkowskiConvolution(3, 8, 3, dimension=3), ...))

    Modules of other libraries stay what they are, with their parts converted. A ``forward`` that calls functions of
    MinkowskiEngine itself, as ``ME.cat``, is not: run such a model as it is (``gsb.enable("MinkowskiEngine")``).

    Coordinates of a ``SparseTensor`` count cells of its own grid, where those of MinkowskiEngine are multiples of the
    stride. Global pooling returns sparse tensors, as there.

    Raises TypeError that names a layer which has none here.
    """
    return _converted(copy.deepcopy(model), {})


def _converted(module: Module, known: dict[int, Module]) -> Module:
    if id(module) not in known:
        make = next((_MAKE[each.__name__] for each in type(module).__mro__ if each.__name__ in _MAKE), None)
        if make is not None:
            known[id(module)] = make(module).train(module.training)
        elif type(module).__name__.startswith("Minkowski") and not next(module.children(), None):
            raise TypeError(f"{module} has no layer here; MinkowskiEngine's that have one are {sorted(_MAKE)}")
        else:
            known[id(module)] = module
            for name, child in list(module.named_children()):
                setattr(module, name, _converted(child, known))
    return known[id(module)]


def _window(layer: Any) -> tuple[dict[str, Any], list[int]]:
    """(arguments of a layer here, which of the layer's weights each offset has)."""
    of = layer.kernel_generator
    sizes, dilation = ([int(x) for x in each] for each in (of.kernel_size, of.kernel_dilation))
    given = {"stride": [int(x) for x in of.kernel_stride], "dilation": dilation, "dim": len(sizes)}
    region = getattr(of.region_type, "name", str(of.region_type)).rpartition(".")[2]
    if region == "CUSTOM":
        offsets = Offsets(of.region_offsets)
        return {"kernel_size": offsets, **given}, list(range(len(offsets.offsets)))
    if region == "HYPER_CROSS":
        # the middle first, then of each axis steps forward from near to far, and steps back from far to near
        listed = [(0,) * len(sizes)]
        for axis, size in enumerate(sizes):
            reach = size // 2
            for step in (*range(1, reach + 1), *range(-reach, 0)):
                listed.append((*(0,) * axis, step, *(0,) * (len(sizes) - axis - 1)))
        return {"kernel_size": Cross(sizes), **given}, [listed.index(each) for each in sorted(listed)]
    if any(size % 2 == 0 and size > 2 for size in sizes):  # which begin at their site there
        given["padding"] = [d * (size // 2) if size % 2 else 0 for size, d in zip(sizes, dilation)]
    # there the first axis is fastest
    order = torch.arange(int(torch.tensor(sizes).prod())).reshape(sizes[::-1])
    return {"kernel_size": sizes, **given}, order.permute(*reversed(range(len(sizes)))).flatten().tolist()


def _convolution(make: Callable[..., convolution.Convolution], channelwise: bool = False) -> Callable[[Any], Module]:
    """channelwise: a weight for each channel, not a matrix."""

    def converted(layer: Any) -> Module:
        given, order = _window(layer)
        weight = layer.kernel.detach()
        weight = weight.reshape(len(order), 1 if channelwise else -1, weight.shape[-1])
        groups = weight.shape[2] if channelwise else 1
        made = make(
            layer, weight.shape[1] * groups, weight.shape[2], groups=groups, bias=layer.bias is not None, **given
        )
        made.to(weight.device, weight.dtype)
        with torch.no_grad():
            made.weight.copy_(weight[order])
            if made.bias is not None:
                made.bias.copy_(layer.bias.flatten())
        return made

    return converted


def _forward(layer: Any, *channels: int, **given: Any) -> convolution.Convolution:
    expand = getattr(layer.kernel_generator, "expand_coordinates", False)
    if set(given["stride"]) == {1} and not expand and "padding" not in given:
        del given["stride"]
        return convolution.SubMConv(*channels, **given)
    return convolution.SparseConv(*channels, outputs="reached" if expand else "occupied", **given)


def _transposed(layer: Any, *channels: int, **given: Any) -> convolution.Convolution:
    generative = bool(getattr(layer.kernel_generator, "expand_coordinates", False))
    return convolution.SparseConvTranspose(*channels, generative=generative, **given)


def _generative(layer: Any, *channels: int, **given: Any) -> convolution.Convolution:
    return convolution.SparseConvTranspose(*channels, generative=True, **given)


def _pool(make: Callable[..., Module], **more: Any) -> Callable[[Any], Module]:
    return lambda layer: make(**_window(layer)[0], **more)


def _inner(name: str) -> Callable[[Any], Module]:
    """The layer of PyTorch that is within, over the features."""

    def converted(layer: Any) -> Module:
        inner = getattr(layer, name)
        ours = _OVER_FEATURES.get(type(inner))
        if ours is None:
            raise TypeError(f"{layer} has no layer here: {type(inner).__name__} is none of {sorted(_NAMES)}")
        inner.__class__ = ours  # with all that it was made with
        return inner

    return converted


def _instance(layer: Any) -> Module:
    made = norms.InstanceNorm(layer.weight.shape[-1], getattr(layer, "eps", 1e-8)).to(
        layer.weight.device, layer.weight.dtype
    )
    with torch.no_grad():
        for name in ("weight", "bias"):
            getattr(made, name).copy_(getattr(layer, name).flatten())
    return made


_OVER_FEATURES: dict[type, type] = {
    base: ours
    for ours in vars(pointwise).values()
    if isinstance(ours, type) and issubclass(ours, pointwise.OverFeatures) and ours is not pointwise.OverFeatures
    for base in ours.__bases__[1:]
} | {torch.nn.SyncBatchNorm: norms.SyncBatchNorm}
_NAMES = [base.__name__ for base in _OVER_FEATURES]

_POOLS = {"Sum": "SparseSumPool", "Avg": "SparseAvgPool", "Max": "SparseMaxPool"}
_MAKE: dict[str, Callable[[Any], Module]] = {
    "MinkowskiConvolution": _convolution(_forward),
    "MinkowskiChannelwiseConvolution": _convolution(_forward, channelwise=True),
    "MinkowskiConvolutionTranspose": _convolution(_transposed),
    "MinkowskiGenerativeConvolutionTranspose": _convolution(_generative),
    "MinkowskiBatchNorm": _inner("bn"),
    "MinkowskiLinear": _inner("linear"),
    "MinkowskiNonlinearityBase": _inner("module"),
    "MinkowskiInstanceNorm": _instance,
    "MinkowskiStableInstanceNorm": _instance,
    "MinkowskiPoolingTranspose": _pool(pooling.SparsePoolTranspose),
    **{f"Minkowski{kind}Pooling": _pool(getattr(pooling, ours), outputs="occupied") for kind, ours in _POOLS.items()},
    **{
        f"MinkowskiGlobal{kind}Pooling": lambda layer, make=make: make(sparse=True)
        for kind, make in (
            ("Sum", pooling.GlobalSumPool),
            ("Avg", pooling.GlobalAvgPool),
            ("Max", pooling.GlobalMaxPool),
            ("", pooling.GlobalAvgPool),
        )
    },
}
"""What is made of a layer, by the name of its class or the nearest one above."""
