"""What a convolution must do, counted as by ``benchmarks.operators.work``."""

from __future__ import annotations

import torch

from benchmarks.operators.work import INDEX_BYTES, VALUE_BYTES, Work
from models.point_clouds.layers import Layer


def convolution_work(layer: Layer, *, backward: bool, itemsize: int = VALUE_BYTES) -> Work:
    """A product for each pair. Compulsory: every input that has a pair, the weights, the pairs and the outputs once;
    gather: a row of the inputs for each pair.

    backward: the gradients to features and weights as well: a convolution of the transposed map, and products that both
    inputs and cotangents enter.
    """
    pairs, (outputs, inputs) = layer.kernel_map.num_pairs, layer.kernel_map.shape
    touched = int(torch.bincount(layer.kernel_map.inputs, minlength=inputs).count_nonzero())
    x, y, weight = (n * itemsize for n in (layer.inputs, layer.outputs, layer.kernel**3 * layer.inputs * layer.outputs))
    structure = (2 * pairs + layer.kernel**3 + 1) * INDEX_BYTES
    flops = 2 * pairs * layer.inputs * layer.outputs
    forward = Work(touched * x + weight + outputs * y + structure, pairs * x + weight + outputs * y + structure, flops)
    if not backward:
        return forward
    to_x = Work(outputs * y + weight + inputs * x + structure, pairs * y + weight + inputs * x + structure, flops)
    to_weight = Work(touched * x + outputs * y + weight + structure, pairs * (x + y) + weight + structure, flops)
    return forward + to_x + to_weight
