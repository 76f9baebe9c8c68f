"""Operators on a few edges, straight from the tensors of a framework to kernels that read them as they are listed.

==============  ====================================================================================
module          what it holds
==============  ====================================================================================
``listed``      index tensors that are read as they are, and what hangs on them while they live
``reductions``  reductions and softmaxes of what stands at edges, by an index tensor
``operators``   reductions, maps and softmaxes of messages, on a list of edges
==============  ====================================================================================

What few edges are is `planner.cpu.listed.FEW`; ``GSB_FEW_EDGES`` sets it for a process.
"""

from ...config import FEW_EDGES
from ...planner.cpu.listed import FEW

if (_chosen := FEW_EDGES.get()) is not None:
    FEW.set(_chosen)

__all__ = ["FEW"]
