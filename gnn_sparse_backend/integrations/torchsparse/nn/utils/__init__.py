"""Functions of features, and the offsets of a kernel."""

from .apply import fapply
from .kernel import get_kernel_offsets

__all__ = ["fapply", "get_kernel_offsets"]
