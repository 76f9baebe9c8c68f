"""The names of pyg-lib over our kernels, given for ``import pyg_lib`` by ``enable("pyg_lib")``, and to PyG, where
pyg-lib is not installed, by ``enable("pyg")``.

=================  ======================================================================================
module             what it holds
=================  ======================================================================================
``ops``            products by segment, sorts, softmax, reductions, splines, clusters, points
``sampler``        ``neighbor_sample``, ``hetero_neighbor_sample``, ``subgraph`` and ``random_walk``
``distributed``    samples of graphs in parts
``partition``      ``metis``
``classes``        ``torch.classes.pyg``
``operators``      ``torch.ops.pyg``
``served``         what PyG is given
``home``           a folder for matrices
``testing``        what tests ask for
=================  ======================================================================================

Calls are counted by the names of the functions.
"""

from typing import TYPE_CHECKING

from ...deferred import later
from . import operators
from .home import get_home_dir, set_home_dir

if TYPE_CHECKING:
    from . import ops, partition, sampler
else:
    ops, partition, sampler = (later(f"{__name__}.{each}", f".{each}") for each in ("ops", "partition", "sampler"))

__version__ = "0.9.0"


def cuda_version() -> int:
    """Which CUDA the library was built with: -1, for none."""
    return -1


__all__ = [
    "__version__",
    "cuda_version",
    "get_home_dir",
    "operators",
    "ops",
    "partition",
    "sampler",
    "set_home_dir",
]
