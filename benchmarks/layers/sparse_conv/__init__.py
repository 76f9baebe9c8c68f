"""The layers and the networks of ``python -m benchmarks.sparse_conv``."""
