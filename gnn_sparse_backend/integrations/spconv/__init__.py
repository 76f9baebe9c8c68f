"""Our kernels under spconv (2.3): layers of SparseConvTensors, forward and backward.

===============  ======================================================================================
module           what it holds
===============  ======================================================================================
``convolution``  ``SparseConvolutionBase._conv_forward``: submanifold, strided, transposed, inverse layers
``pooling``      ``forward`` of ``SparseMaxPool``, ``SparseAvgPool``, ``SparseGlobalMaxPool``, ``SparseGlobalAvgPool``
``sums``         ``sparse_add`` and ``sparse_add_hash_based``: tensors on different sites
``maps``         the kernel map of a layer: of indices, or shared by ``indice_key``
``operands``     which tensors the kernels take
===============  ======================================================================================

Counted by the layers' names without their number of axes: ``SubMConv``, ``SparseConv``, ``SparseConvTranspose``,
``SparseInverseConv``, ``SparseMaxPool``, ``SparseAvgPool``, ``SparseGlobalMaxPool``, ``SparseGlobalAvgPool``; and
``sparse_add``. A convolution of one offset is a dense product, which spconv leaves to PyTorch, and is not counted.

Results are spconv's as sets of sites and features. Sites that are not those of the input come in ascending order,
column by column; spconv has them in the order in which it meets them. Weights have spconv's layout, the output channels
before the axes of the kernel and the input channels after them, whatever the ``algo``.
"""

from __future__ import annotations

from spconv.pytorch import functional
from spconv.pytorch.conv import SparseConvolutionBase
from spconv.pytorch.pool import SparseAvgPool, SparseGlobalAvgPool, SparseGlobalMaxPool, SparseMaxPool

from ...dynamo import not_traced
from ..core.patch import Patches
from . import convolution, maps, pooling, sums

_patches = Patches()
_REPLACED = (
    (SparseConvolutionBase, "_conv_forward", convolution.make_forward),
    (SparseMaxPool, "forward", pooling.make_max),
    (SparseAvgPool, "forward", pooling.make_mean),
    (SparseGlobalMaxPool, "forward", pooling.make_global_max),
    (SparseGlobalAvgPool, "forward", pooling.make_global_mean),
    (functional, "sparse_add", sums.make_sum),
    (functional, "sparse_add_hash_based", sums.make_sum),
)


def activate() -> None:
    """Put our kernels under spconv; called by ``enable("spconv")``."""
    for owner, name, make in _REPLACED:
        # what a layer finds in its input's indices is nothing for a compiler: it breaks the graph, as spconv's own does
        _patches.set(owner, name, not_traced(make(getattr(owner, name))))


def deactivate() -> None:
    """Put spconv's own layers back and forget all sites."""
    _patches.undo()
    maps.forget_all()
