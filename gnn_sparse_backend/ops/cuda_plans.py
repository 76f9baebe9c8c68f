"""Plans of operators on a GPU. A graph is planned at its first call, which may wait for the GPU once; later calls never do.

So a CUDA graph is captured after one call outside of the capture, which also compiles.
"""
from __future__ import annotations

from ..planner.cuda_plan import LONG_ROW, CudaPlan, plan_cuda
from .immutable import once


def cuda_plan_of(graph, arch: str, features: int, kind: str = "", whole: bool = False) -> CudaPlan:
    """The plan of an operator over the edges of a graph.

    kind: as of ``plan_cuda``. whole: rows must not be cut.
    """
    longest = 0 if whole or graph.num_edges < LONG_ROW else once(graph.plans, "longest row on a GPU", lambda: _longest(graph))
    return plan_cuda(arch, graph.shape[0], graph.num_edges, features, longest, kind)


def _longest(graph) -> int:
    return int(graph.indptr.diff().max())  # waits for the GPU


__all__ = ["cuda_plan_of"]
