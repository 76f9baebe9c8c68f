"""Kernels of attention and of the softmax over edges, by what is static in them."""

from __future__ import annotations

import functools

from ..compiler.compile import compile_program
from ..compiler.kernels.kernel import Kernel
from ..compiler.programs.edge_softmax import EdgeSoftmaxSpec, edge_softmax, edge_softmax_gradient
from ..compiler.programs.operands import ACCUMULATOR
from ..compiler.schedule.cpu import CpuSchedule
from ..compiler.target import host_target
from ..compiler.transform.tile import tile_axis
from .tiling import register_tiles

_BYTES = {"float64": 8, "float32": 4}


@functools.lru_cache(maxsize=None)
def edge_softmax_kernel(spec: EdgeSoftmaxSpec, gradient: bool, parallel: bool) -> Kernel:
    """The kernel of a softmax over edges, or of its gradient; serial where threads would cost more than they save."""
    target = host_target()
    program = edge_softmax_gradient(spec) if gradient else edge_softmax(spec)
    tiles = register_tiles(spec.width, _BYTES[ACCUMULATOR[spec.dtype]], target)
    return compile_program(tile_axis(program, "K", tiles), CpuSchedule(parallel=parallel), target)
