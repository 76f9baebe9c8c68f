"""The names of torch-scatter over our kernels, given for ``import torch_scatter`` by ``enable("torch_scatter")``.

=================  ======================================================================================
module             what it holds
=================  ======================================================================================
``kernels``        reductions along a dimension by our kernels
``reductions``     reductions for any index, by these or by PyTorch
``scatter``        ``scatter_*``
``segment_csr``    ``segment_*_csr`` and ``gather_csr``
``segment_coo``    ``segment_*_coo`` and ``gather_coo``
``composite``      softmax, its logarithm, the logarithm of sums of exponentials, deviations
``utils``          how an index is broadcast
``testing``        what tests ask for
=================  ======================================================================================

Calls are counted by the names of the functions.
"""

from . import composite, testing, utils
from .composite import scatter_log_softmax, scatter_logsumexp, scatter_softmax, scatter_std
from .scatter import scatter, scatter_add, scatter_max, scatter_mean, scatter_min, scatter_mul, scatter_sum
from .segment_coo import (
    gather_coo,
    segment_add_coo,
    segment_coo,
    segment_max_coo,
    segment_mean_coo,
    segment_min_coo,
    segment_sum_coo,
)
from .segment_csr import (
    gather_csr,
    segment_add_csr,
    segment_csr,
    segment_max_csr,
    segment_mean_csr,
    segment_min_csr,
    segment_sum_csr,
)

__version__ = "2.1.2"

MODULES = {
    "composite.logsumexp": "composite",
    "composite.softmax": "composite",
    "composite.std": "composite",
}
"""Modules that torch-scatter has by other names."""

__all__ = [
    "MODULES",
    "__version__",
    "composite",
    "gather_coo",
    "gather_csr",
    "scatter",
    "scatter_add",
    "scatter_log_softmax",
    "scatter_logsumexp",
    "scatter_max",
    "scatter_mean",
    "scatter_min",
    "scatter_mul",
    "scatter_softmax",
    "scatter_std",
    "scatter_sum",
    "segment_add_coo",
    "segment_add_csr",
    "segment_coo",
    "segment_csr",
    "segment_max_coo",
    "segment_max_csr",
    "segment_mean_coo",
    "segment_mean_csr",
    "segment_min_coo",
    "segment_min_csr",
    "segment_sum_coo",
    "segment_sum_csr",
    "testing",
    "utils",
]
