"""Plug-ins that put the operators of this package under frameworks of graphs and voxels, without changing a model.

    gsb.enable("dgl")             # from here on, DGL's message passing runs our kernels where they apply
    with gsb.enabled("pyg"): ...  # the same for a block of code
    gsb.enable("MinkowskiEngine") # import MinkowskiEngine gives modules of ours, for it or without it
    print(gsb.status())           # what ran here, what fell back to the framework, and why
    gsb.disable()                 # every attribute of the frameworks is the object it was before

A framework is imported when it is enabled, not before. Switching is process-wide, as the frameworks' modules are.
"""

from .core.counters import Status, reset_status, status
from .core.registry import disable, enable, enabled

__all__ = ["Status", "disable", "enable", "enabled", "reset_status", "status"]
