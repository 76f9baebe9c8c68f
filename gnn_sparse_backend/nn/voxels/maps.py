"""Which kernel map a layer takes, and where its outputs are: the layers have their weights beside this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch

from ...dynamo import not_traced
from ...structures.coordinates import Coordinates, Generated, Occupied, Reached, Window, kernel_map_between
from ...structures.coordinates.sites import finer
from ...structures.kernel_map import KernelMap

Path: TypeAlias = tuple[tuple[Coordinates, Window], ...]
"""The finer sites that a tensor came from, each with the window of the layer that left them."""
Placed: TypeAlias = tuple[KernelMap, Coordinates, Path]
"""The map of a layer, the sites of its outputs, and their path."""

OUTPUTS = ("reached", "occupied")
F = TypeVar("F", bound=Callable[..., Any])


def kept(function: F) -> F:
    """What a function finds is kept for other calls: neither a part of the program that is compiled, nor in inference
    mode.
    """
    return not_traced(torch.inference_mode(False)(function))


@kept
def convolved(sites: Coordinates, path: Path, window: Window, outputs: str) -> Placed:
    """Place the outputs of a convolution. outputs: one of ``OUTPUTS``."""
    _check_axes(sites, window)
    if outputs not in OUTPUTS:
        raise ValueError(f"outputs must be one of {OUTPUTS}, got {outputs!r}")
    coarse = sites
    if outputs == "reached" and not window.keeps_sites:
        coarse = sites.derived(Reached(window))
    elif outputs == "occupied" and set(window.stride) != {1}:
        coarse = sites.derived(Occupied(window.stride))
    path = path if coarse is sites else (*path, (sites, window))
    return kernel_map_between(sites, coarse, window), coarse, path


@kept
def returned(sites: Coordinates, path: Path, window: Window) -> Placed:
    """Place the outputs of a transposed convolution at the last sites on the path whose stride is the right one."""
    _check_axes(sites, window)
    stride = finer(sites, window.stride)
    for at in range(len(path) - 1, -1, -1):
        fine = path[at][0]
        if fine.stride == stride:
            return kernel_map_between(fine, sites, window).transpose(), fine, path[:at]
    raise ValueError(
        f"the tensor, of stride {sites.stride}, did not come from one of stride {stride}: give the sites of the "
        "result, layer(x, coordinates), or generate all that the kernel reaches, with generative=True"
    )


@kept
def placed(sites: Coordinates, window: Window, fine: Coordinates) -> Placed:
    """Place the outputs of a transposed convolution at given sites."""
    _check_axes(sites, window)
    if fine.dim != sites.dim or fine.stride != finer(sites, window.stride) or fine.device != sites.device:
        raise ValueError(
            f"the result of {sites!r} is at stride {finer(sites, window.stride)}, not at that of the given {fine!r}"
        )
    return kernel_map_between(fine, sites, window).transpose(), fine, ()


@kept
def generated(sites: Coordinates, window: Window, centred: bool) -> Placed:
    """Place the outputs of a transposed convolution at all sites that its kernel reaches."""
    _check_axes(sites, window)
    fine = sites.derived(Generated(window, centred))
    return kernel_map_between(fine, sites, window).transpose(), fine, ()


def to_finer(
    sites: Coordinates, path: Path, window: Window, to: Any = None, generative: bool = False, centred: bool = True
) -> Placed:
    """Place the outputs of a transposed layer: at given sites, at all that its kernel reaches, or at those of the path.

    to: None, a tensor with sites, or rows of coordinates.
    """
    if to is not None:
        stride = tuple(max(t // s, 1) for t, s in zip(sites.stride, window.stride))
        fine = to.sites if hasattr(to, "sites") else Coordinates.of(to, stride, sites.batch_size)
        return placed(sites, window, fine)
    return generated(sites, window, centred) if generative else returned(sites, path, window)


@kept
def inverted(sites: Coordinates, path: Path, kernel: Window) -> Placed:
    """Place the outputs of the inverse of the last layer that came from other sites."""
    if not path:
        raise ValueError(f"an inverse layer wants a tensor that a strided layer returned; {sites!r} came from no other")
    fine, window = path[-1]
    if window.shape != kernel.shape:
        raise ValueError(
            f"an inverse layer has the kernel of the layer that it inverts, {window.shape}, got kernel_size "
            f"{kernel.shape}"
        )
    return kernel_map_between(fine, sites, window).transpose(), fine, path[:-1]


def _check_axes(sites: Coordinates, window: Window) -> None:
    if sites.dim != window.dim:
        raise ValueError(f"the layer is for {window.dim} axes (dim={window.dim}), but the tensor has {sites.dim}")
