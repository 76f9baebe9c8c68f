"""The boundary to the kernels of sparse convolution: forward only, no autograd, operands already validated.

On a GPU a map is planned at its first call, which waits for sizes of its tiles; later calls never do.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...compiler.own_schedules import in_force
from ...planner.decisions import listeners
from ...runtime import devices
from ...runtime.precision import on_tensor_cores
from ...runtime.threads import planned_threads
from ...structures.kernel_map import KernelMap
from . import decisions, executables_cpu, executables_cuda

Call = Callable[[Tensor, Tensor], Tensor]


def conv(kernel_map: KernelMap, x: Tensor, w: Tensor, order: str | None = None) -> Tensor:
    """``Y[i] = sum over offsets k and pairs (j, i) of k of x[j] @ w[k]``: (outputs, groups * F_out).

    w: (K, groups, F_in, F_out). order: one of ``planner.cpu.convolution.ORDERS``, on a GPU "tiles", "depthwise" or
    "rgms"; that of `order_of` if None.
    """
    rows, (_, groups, *widths) = kernel_map.shape[0], w.shape
    if kernel_map.num_pairs == 0 or w.numel() == 0:
        return x.new_zeros(rows, groups * widths[1])
    described = groups, *widths, x.dtype
    found = _found(kernel_map, _product, described, order)(x, w)
    if listeners.told is not None and order is None and devices.on_cpu(x.device):
        decisions.tell(kernel_map, False, described, x, w)
    return found


def conv_sum(kernel_map: KernelMap, x: Tensor, g: Tensor, groups: int) -> Tensor:
    """``W[k]`` = the blocks on the diagonal of the sum over the pairs (j, i) of k of outer(x[j], g[i]): (K, groups,
    F_in, F_out).
    """
    described = groups, x.shape[1] // groups, g.shape[1] // groups
    shape = kernel_map.num_offsets, *described
    if kernel_map.num_pairs == 0 or 0 in shape:
        return x.new_zeros(shape)
    found = _found(kernel_map, _sum, (*described, x.dtype))(x, g)
    if listeners.told is not None and devices.on_cpu(x.device):
        decisions.tell(kernel_map, True, (*described, x.dtype), x, g)
    return found


def order_of(kernel_map: KernelMap, groups: int, in_features: int, out_features: int, dtype: torch.dtype) -> str:
    """How products of one shape and type are made: the dataflow that the planner takes, on a GPU by rules."""
    described = groups, in_features, out_features, dtype
    if groups > 1 and in_features == out_features == 1:
        return "depthwise"
    if arch := devices.arch_of(kernel_map.device):
        return executables_cuda.order_on_gpu(kernel_map, *described, arch)
    costs = executables_cpu.predicted(kernel_map, *described)
    return min(costs, key=costs.__getitem__)


def _found(kernel_map: KernelMap, make: Callable[..., Call], described: tuple, *more) -> Call:
    """What runs calls of one shape and type on the map, made once; it does not hold the map."""
    arch = devices.arch_of(kernel_map.device)
    by, where = (executables_cuda, arch) if arch else (decisions, planned_threads())
    key = make, where, bool(arch) and on_tensor_cores(described[-1]), described, more, in_force.generation
    return kernel_map.calls.found(key, lambda: make(by, kernel_map, (*described, where), *more))


def _product(by, kernel_map: KernelMap, described: tuple, order: str | None) -> Call:
    if by is decisions:
        return decisions.product(kernel_map, order, *described)
    order = order or order_of(kernel_map, *described[:-1])
    if order != "rgms":
        return by.product(kernel_map, order, *described)
    return decisions.product_by_panels(kernel_map)


def _sum(by, kernel_map: KernelMap, described: tuple) -> Call:
    return by.sums(kernel_map, *described) or decisions.sum_by_panels(kernel_map, described[0])
