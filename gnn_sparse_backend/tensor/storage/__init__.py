"""Tensors in formats: levels, the arrays of a structure, values, and what tensors are read from and turned into."""
