"""``torch.ops.pyg``: operators that PyG calls by their names in C++, while nobody else has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...deferred import later
from ..core.substitutes.scripted import register

if TYPE_CHECKING:
    from . import ops, partition, sampler
else:
    ops, partition, sampler = (later(__name__, each) for each in (".ops", ".partition", ".sampler"))

_OPERATORS = {
    "fps(Tensor src, Tensor ptr, float ratio, bool random_start) -> Tensor": lambda *given: ops.fps(*given),
    "knn(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, int k, bool cosine, int num_workers) -> Tensor": (
        lambda x, y, ptr_x, ptr_y, k, cosine, workers: ops.knn(x, y, k, ptr_x, ptr_y, cosine)
    ),
    "radius(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, float r, int max_num_neighbors, int num_workers, bool "
    "ignore_same_index) -> Tensor": (
        lambda x, y, ptr_x, ptr_y, r, most, workers, same: ops.radius(x, y, r, ptr_x, ptr_y, most, 1, same)
    ),
    "nearest(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y) -> Tensor": lambda *given: ops.nearest(*given),
    "graclus_cluster(Tensor rowptr, Tensor col, Tensor? weight) -> Tensor": lambda *given: ops.graclus_cluster(*given),
    "grid_cluster(Tensor pos, Tensor size, Tensor? start, Tensor? end) -> Tensor": lambda *given: ops.grid_cluster(
        *given
    ),
    "spline_basis(Tensor pseudo, Tensor kernel_size, Tensor is_open_spline, int degree) -> "
    "(Tensor, Tensor)": lambda *given: ops.spline_basis(*given),
    "spline_weighting(Tensor x, Tensor weight, Tensor basis, Tensor weight_index) -> Tensor": lambda *given: (
        ops.spline_weighting(*given)
    ),
    "index_sort(Tensor inputs, int? max_value) -> (Tensor, Tensor)": lambda *given: ops.index_sort(*given),
    "softmax_csr(Tensor src, Tensor ptr, int dim) -> Tensor": lambda *given: ops.softmax_csr(*given),
    "segment_matmul(Tensor inputs, Tensor ptr, Tensor other) -> Tensor": lambda *given: ops.segment_matmul(*given),
    "edge_sample(Tensor start, Tensor rowptr, int count, float factor) -> Tensor": lambda *given: ops.edge_sample(
        *given
    ),
    "random_walk(Tensor rowptr, Tensor col, Tensor seed, int walk_length, float p, float q) -> Tensor": lambda *given: (
        sampler.random_walk(*given)
    ),
    "subgraph(Tensor rowptr, Tensor col, Tensor nodes, bool return_edge_id) -> "
    "(Tensor, Tensor, Tensor?)": lambda *given: sampler.subgraph(*given),
    "metis(Tensor rowptr, Tensor col, int num_partitions, Tensor? node_weight, Tensor? edge_weight, bool recursive) -> "
    "Tensor": lambda *given: partition.metis(*given),
}

register("pyg", _OPERATORS)
