"""Primitives for blocks, warps and lanes of a GPU."""
