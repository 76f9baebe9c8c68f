"""Which kernel map a layer takes, and where its outputs are: the layers have their weights beside this."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import torch

from ...dynamo import not_traced
from ...structures.coordinates import Coordinates, Window, kernel_map_between, per_axis
from ...structures.coordinates.sites import finer
from ...structures.kernel_map import KernelMap
from .traced import TracedSites, traced, traced_rows

Path: TypeAlias = tuple[tuple[Coordinates, Window], ...]
"""The finer sites that a tensor came from, each with the window of the layer that left them."""
Placed: TypeAlias = tuple[KernelMap, Coordinates, Path]
"""The map of a layer, the sites of its outputs, and their path."""

OUTPUTS = ("reached", "occupied")
F = TypeVar("F", bound=Callable[..., Any])


def traceable(function: F) -> F:
    """A function of sites, then of a path, which places outputs: what it finds is kept for other calls. In a program
    that is traced it has what stands for sites.
    """
    eager = kept(function)

    @functools.wraps(function)
    def placing(sites: Any, *args: Any) -> Any:
        return function(traced(sites), *args) if torch.compiler.is_compiling() else eager(sites, *args)

    return placing  # type: ignore[return-value]


def kept(function: F) -> F:
    """What a function finds is kept for other calls: neither a part of the program that is compiled, nor in inference
    mode. Sites of a program are found for it.
    """

    @functools.wraps(function)
    def alive(*args: Any, **named: Any) -> Any:
        return function(*map(_alive, args), **named)

    return not_traced(torch.inference_mode(False)(alive))


def _alive(value: Any) -> Any:
    if isinstance(value, TracedSites):
        return value.live()
    return tuple(map(_alive, value)) if type(value) is tuple else value


def sites_of_rows(rows: Any, stride: Any = 1, batch_size: int | None = None, sizes: Any = None) -> Any:
    """Make sites of rows that a user gives, which in a program that is traced are checked when it runs."""
    if not torch.compiler.is_compiling():
        return Coordinates.of(rows, stride, batch_size, sizes)
    dim = rows.shape[1] - 1
    sizes = None if sizes is None else per_axis("spatial_shape", tuple(sizes), dim)
    return traced_rows(rows, per_axis("stride", stride, dim), batch_size, sizes)


@traceable
def convolved(sites: Coordinates, path: Path, window: Window, outputs: str) -> Placed:
    """Place the outputs of a convolution. outputs: one of ``OUTPUTS``."""
    _check_axes(sites, window)
    if outputs not in OUTPUTS:
        raise ValueError(f"outputs must be one of {OUTPUTS}, got {outputs!r}")
    coarse = sites
    if outputs == "reached" and not window.keeps_sites:
        coarse = sites.reached(window)
    elif outputs == "occupied" and set(window.stride) != {1}:
        coarse = sites.occupied(window.stride)
    path = path if coarse is sites else (*path, (sites, window))
    return _between(sites, coarse, window), coarse, path


@traceable
def returned(sites: Coordinates, path: Path, window: Window) -> Placed:
    """Place the outputs of a transposed convolution at the last sites on the path whose stride is the right one."""
    _check_axes(sites, window)
    stride = finer(sites, window.stride)
    for at in range(len(path) - 1, -1, -1):
        fine = path[at][0]
        if fine.stride == stride:
            return _between(fine, sites, window).transpose(), fine, path[:at]
    raise ValueError(
        f"the tensor, of stride {sites.stride}, did not come from one of stride {stride}: give the sites of the "
        "result, layer(x, coordinates), or generate all that the kernel reaches, with generative=True"
    )


@traceable
def placed(sites: Coordinates, window: Window, fine: Coordinates) -> Placed:
    """Place the outputs of a transposed convolution at given sites."""
    _check_axes(sites, window)
    if fine.dim != sites.dim or fine.stride != finer(sites, window.stride) or fine.device != sites.device:
        raise ValueError(
            f"the result of {sites!r} is at stride {finer(sites, window.stride)}, not at that of the given {fine!r}"
        )
    return _between(fine, sites, window).transpose(), fine, ()


@traceable
def generated(sites: Coordinates, window: Window, centred: bool) -> Placed:
    """Place the outputs of a transposed convolution at all sites that its kernel reaches."""
    _check_axes(sites, window)
    fine = sites.generated(window, centred)
    return _between(fine, sites, window).transpose(), fine, ()


def to_finer(
    sites: Coordinates, path: Path, window: Window, to: Any = None, generative: bool = False, centred: bool = True
) -> Placed:
    """Place the outputs of a transposed layer: at given sites, at all that its kernel reaches, or at those of the path.

    to: None, a tensor with sites, or rows of coordinates.
    """
    if to is not None:
        stride = tuple(max(t // s, 1) for t, s in zip(sites.stride, window.stride))
        fine = to.sites if hasattr(to, "sites") else sites_of_rows(to, stride, sites.batch_size)
        return placed(sites, window, fine)
    return generated(sites, window, centred) if generative else returned(sites, path, window)


@traceable
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
    return _between(fine, sites, window).transpose(), fine, path[:-1]


def _between(fine: Any, coarse: Any, window: Window) -> Any:
    """The kernel map, or what stands for it."""
    if isinstance(coarse, TracedSites):
        return coarse.map_from(traced(fine), window)
    return kernel_map_between(fine, coarse, window)


def _check_axes(sites: Coordinates, window: Window) -> None:
    if sites.dim != window.dim:
        raise ValueError(f"the layer is for {window.dim} axes (dim={window.dim}), but the tensor has {sites.dim}")
