"""MinkowskiEngine 0.5 on the layers of ``gnn_sparse_backend.nn``: what ``import MinkowskiEngine`` gives once it is
enabled.
"""

__version__ = "0.5.4"
