"""The names of torch-spline-conv over our kernels, given for ``import torch_spline_conv`` by
``enable("torch_spline_conv")``.

Calls are counted by the names of the functions. Modules: ``splines`` holds all of them, ``testing`` what tests ask for.
"""

from . import testing
from .splines import spline_basis, spline_conv, spline_weighting

__version__ = "1.2.2"

MODULES = {"basis": "splines", "conv": "splines", "weighting": "splines"}
"""Modules that torch-spline-conv has by other names."""

__all__ = ["MODULES", "__version__", "spline_basis", "spline_conv", "spline_weighting", "testing"]
