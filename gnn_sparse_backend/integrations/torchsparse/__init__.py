"""The names of torchsparse over our layers, given for ``import torchsparse`` by ``enable("torchsparse")``.

=================  ======================================================================================
module             what it holds
=================  ======================================================================================
``tensor``         ``SparseTensor`` and ``PointTensor``
``conventions``    where the batch is in coordinates, and what they count: of torchsparse 2.1, or of 1.4
``sites``          coordinates as our sites, found again by their tensor
``places``         the kernel map of a layer, and where its outputs are
``search``         rows and hashes looked up among others
``nn``             layers; ``nn.functional`` what they compute, and hashes, voxels and points
``utils``          quantisation, batches, caches
``backbones``      ``SparseResNet21D`` and ``SparseResUNet42``
``absent``         names that are there to be imported, and raise when they are used
=================  ======================================================================================

Layers are counted as ``Conv3d``, ``Conv3d transposed``, ``Conv3d generative``, ``GlobalAvgPool``, ``GlobalMaxPool``,
``spvoxelize`` and ``spdevoxelize``. A convolution of one offset and stride 1 is a dense product of PyTorch's, and is
not counted.
"""

from . import backbones, backend, backends, nn, operators, tensor, utils
from .conventions import convention
from .operators import cat, generative_add
from .tensor import PointTensor, SparseTensor
from .utils.tune import tune

__version__ = convention().version

MODULES = {
    "backbones.modules": "backbones.blocks",
    "nn.functional.activation": "nn.functional.pointwise",
    "nn.functional.count": "nn.functional.voxels",
    "nn.functional.devoxelize": "nn.functional.voxels",
    "nn.functional.hash": "nn.functional.hashes",
    "nn.functional.query": "nn.functional.hashes",
    "nn.functional.voxelize": "nn.functional.voxels",
    "nn.modules": "nn",
    "nn.modules.activation": "nn.pointwise",
    "nn.modules.bev": "nn",
    "nn.modules.conv": "nn.convolution",
    "nn.modules.crop": "nn.pooling",
    "nn.modules.norm": "nn.norms",
    "nn.modules.pooling": "nn.pooling",
    "utils.utils": "utils.shapes",
}
"""Modules that torchsparse has by other names."""

__all__ = [
    "MODULES",
    "PointTensor",
    "SparseTensor",
    "__version__",
    "backbones",
    "backend",
    "backends",
    "cat",
    "generative_add",
    "nn",
    "operators",
    "tensor",
    "tune",
    "utils",
]
