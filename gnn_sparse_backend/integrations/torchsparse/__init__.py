"""torchsparse 2 on the layers of ``gnn_sparse_backend.nn``: what ``import torchsparse`` gives once it is enabled."""

__version__ = "2.1.0"
