"""Sparse convolution: stage I programs."""
