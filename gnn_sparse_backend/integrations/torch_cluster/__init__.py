"""The names of torch-cluster over our kernels, given for ``import torch_cluster`` by ``enable("torch_cluster")``.

=================  ======================================================================================
module             what it holds
=================  ======================================================================================
``batches``        points in batches, and edges between them
``knn``            ``knn``, ``knn_graph`` and ``nearest``
``radius``         ``radius`` and ``radius_graph``
``fps``            farthest point sampling
``clusters``       ``graclus_cluster`` and ``grid_cluster``
``walks``          ``random_walk`` and ``neighbor_sampler``
``testing``        what tests ask for
=================  ======================================================================================

Searches, walks and matchings run on the host, whatever the device of their operands. Calls are counted by the names of
the functions.
"""

from . import testing
from .clusters import graclus_cluster, grid_cluster
from .fps import fps
from .knn import knn, knn_graph, nearest
from .radius import radius, radius_graph
from .walks import neighbor_sampler, random_walk

__version__ = "1.6.3"

MODULES = {
    "graclus": "clusters",
    "grid": "clusters",
    "nearest": "knn",
    "rw": "walks",
    "sampler": "walks",
}
"""Modules that torch-cluster has by other names."""

__all__ = [
    "MODULES",
    "__version__",
    "fps",
    "graclus_cluster",
    "grid_cluster",
    "knn",
    "knn_graph",
    "nearest",
    "neighbor_sampler",
    "radius",
    "radius_graph",
    "random_walk",
    "testing",
]
