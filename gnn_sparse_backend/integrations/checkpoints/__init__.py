"""Layers that keep their inputs alone until the backward pass: under PyTorch's checkpoint, or, on large graphs, by
chunks of rows.
"""
