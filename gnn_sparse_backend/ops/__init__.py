"""Operators on PyTorch's tensors: a room for each family, on what ``core`` has for all of them. docs/architecture.md
says what lives where."""
