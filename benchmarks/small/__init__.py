"""Layers and training on small graphs, most of them new at every call: ``python -m benchmarks.small``."""
