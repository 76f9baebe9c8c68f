"""``torch.ops.pyg``: operators that PyG calls by their names in C++, while nobody else has them."""

from __future__ import annotations

import torch
from torch.library import Library

from . import ops, partition, sampler

_OPERATORS = {
    "fps(Tensor src, Tensor ptr, float ratio, bool random_start) -> Tensor": ops.fps,
    "knn(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, int k, bool cosine, int num_workers) -> Tensor": (
        lambda x, y, ptr_x, ptr_y, k, cosine, workers: ops.knn(x, y, k, ptr_x, ptr_y, cosine)
    ),
    "radius(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y, float r, int max_num_neighbors, int num_workers, bool "
    "ignore_same_index) -> Tensor": (
        lambda x, y, ptr_x, ptr_y, r, most, workers, same: ops.radius(x, y, r, ptr_x, ptr_y, most, 1, same)
    ),
    "nearest(Tensor x, Tensor y, Tensor? ptr_x, Tensor? ptr_y) -> Tensor": ops.nearest,
    "graclus_cluster(Tensor rowptr, Tensor col, Tensor? weight) -> Tensor": ops.graclus_cluster,
    "grid_cluster(Tensor pos, Tensor size, Tensor? start, Tensor? end) -> Tensor": ops.grid_cluster,
    "spline_basis(Tensor pseudo, Tensor kernel_size, Tensor is_open_spline, int degree) -> (Tensor, Tensor)": (
        ops.spline_basis
    ),
    "spline_weighting(Tensor x, Tensor weight, Tensor basis, Tensor weight_index) -> Tensor": ops.spline_weighting,
    "index_sort(Tensor inputs, int? max_value) -> (Tensor, Tensor)": ops.index_sort,
    "softmax_csr(Tensor src, Tensor ptr, int dim) -> Tensor": ops.softmax_csr,
    "segment_matmul(Tensor inputs, Tensor ptr, Tensor other) -> Tensor": ops.segment_matmul,
    "edge_sample(Tensor start, Tensor rowptr, int count, float factor) -> Tensor": ops.edge_sample,
    "random_walk(Tensor rowptr, Tensor col, Tensor seed, int walk_length, float p, float q) -> Tensor": (
        sampler.random_walk
    ),
    "subgraph(Tensor rowptr, Tensor col, Tensor nodes, bool return_edge_id) -> (Tensor, Tensor, Tensor?)": (
        sampler.subgraph
    ),
    "metis(Tensor rowptr, Tensor col, int num_partitions, Tensor? node_weight, Tensor? edge_weight, bool recursive) -> "
    "Tensor": partition.metis,
}
_library: list[Library] = []


def register() -> None:
    """Have PyTorch know the operators, unless pyg-lib itself has registered some."""
    if _library or hasattr(torch.ops.pyg, "knn"):
        return
    library = Library("pyg", "FRAGMENT")
    for schema, function in _OPERATORS.items():
        library.impl(library.define(schema), function, "CompositeImplicitAutograd")
    _library.append(library)


register()
