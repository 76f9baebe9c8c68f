"""Tensor algebra: formats, conversions, index notation and kernels, against NumPy."""
