"""Operators by PyTorch's own functions, for gradients whose kernels cannot be had (`runtime.without_kernels`).

Each is the definition of its operator, with all rows of edges or of blocks written out, and summed in the type that
kernels sum in.
"""

from . import attention, composed, masks, messages, products, random  # noqa: F401  (they say what they define)
