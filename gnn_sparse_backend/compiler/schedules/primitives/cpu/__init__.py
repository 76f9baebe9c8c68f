"""Primitives for loops on a CPU."""
