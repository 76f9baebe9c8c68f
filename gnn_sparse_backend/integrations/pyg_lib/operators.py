"""``torch.ops.pyg``: operators that PyG calls by their names in C++, while nobody else has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...deferred import later
from ..core.substitutes.namespaces import named, register
from . import classes

if TYPE_CHECKING:
    from . import distributed, ops, partition, sampler
else:
    distributed, ops, partition, sampler = (
        later(__name__, f".{each}") for each in ("distributed", "ops", "partition", "sampler")
    )

_POINTERS = "Tensor? ptr_x=None, Tensor? ptr_y=None"
_TIMES = "Tensor? node_time=None, Tensor? edge_time=None, Tensor? seed_time=None, Tensor? edge_weight=None"
_DRAWN = "bool csc=False, bool replace=False, bool directed=True, bool disjoint=False, str temporal_strategy='uniform'"
_GIVEN = "int dim=-1, Tensor? out=None, int? dim_size=None"
_RESULTS = {"sum": "Tensor", "mul": "Tensor", "mean": "Tensor", "min": "(Tensor, Tensor)", "max": "(Tensor, Tensor)"}
_SUMS = [name for name in _RESULTS if name != "mul"]

# PyTorch leaves out arguments at the end that are as the schema has them
_OPERATORS: dict[str, Callable[..., Any]] = {
    "cuda_version() -> int": lambda: -1,
    f"knn(Tensor x, Tensor y, {_POINTERS}, int k=1, bool cosine=False, int num_workers=1) -> Tensor": (
        lambda x, y, ptr_x=None, ptr_y=None, k=1, cosine=False, workers=1: ops.knn(x, y, k, ptr_x, ptr_y, cosine)
    ),
    f"radius(Tensor x, Tensor y, {_POINTERS}, float r=1.0, int max_num_neighbors=32, int num_workers=1, "
    "bool ignore_same_index=False) -> Tensor": (
        lambda x, y, ptr_x=None, ptr_y=None, r=1.0, most=32, workers=1, same=False: ops.radius(
            x, y, r, ptr_x, ptr_y, most, workers, same
        )
    ),
    "spline_basis(Tensor pseudo, Tensor kernel_size, Tensor is_open_spline, int degree=1) -> "
    "(Tensor, Tensor)": lambda pseudo, size, is_open, degree=1: ops.spline_basis(pseudo, size, is_open, degree),
    "sampled_op(Tensor left, Tensor right, Tensor? left_index, Tensor? right_index, str op) -> Tensor": (
        lambda left, right, by_left, by_right, op: getattr(ops, f"sampled_{op}")(left, right, by_left, by_right)
    ),
    "hetero_neighbor_sample(str[] node_types, (str, str, str)[] edge_types, Dict(str, Tensor) rowptr_dict, "
    "Dict(str, Tensor) col_dict, Dict(str, Tensor) seed_dict, Dict(str, int[]) num_neighbors_dict, "
    "Dict(str, Tensor)? node_time_dict=None, Dict(str, Tensor)? edge_time_dict=None, "
    f"Dict(str, Tensor)? seed_time_dict=None, Dict(str, Tensor)? edge_weight_dict=None, {_DRAWN}, "
    "bool return_edge_id=True) -> (Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor), Dict(str, Tensor)?, "
    "Dict(str, int[]), Dict(str, int[]))": lambda *given: sampler.sampled(*given),
    **named(
        ops,
        "fps(Tensor src, Tensor ptr, float ratio=0.5, bool random_start=True) -> Tensor",
        f"nearest(Tensor x, Tensor y, {_POINTERS}) -> Tensor",
        "graclus_cluster(Tensor rowptr, Tensor col, Tensor? weight=None) -> Tensor",
        "grid_cluster(Tensor pos, Tensor size, Tensor? start=None, Tensor? end=None) -> Tensor",
        "spline_weighting(Tensor x, Tensor weight, Tensor basis, Tensor weight_index) -> Tensor",
        "index_sort(Tensor indices, int? max=None) -> (Tensor, Tensor)",
        "softmax_csr(Tensor src, Tensor ptr, int dim=0) -> Tensor",
        "grouped_matmul(Tensor[] input, Tensor[] other) -> Tensor[]",
        "segment_matmul(Tensor input, Tensor ptr, Tensor other) -> Tensor",
        "edge_sample(Tensor start, Tensor rowptr, int count=0, float factor=1.0) -> Tensor",
        *(f"scatter_{name}(Tensor src, Tensor index, {_GIVEN}) -> {found}" for name, found in _RESULTS.items()),
        *(
            f"segment_{name}_coo(Tensor src, Tensor index, Tensor? out=None, int? dim_size=None) -> {_RESULTS[name]}"
            for name in _SUMS
        ),
        *(f"segment_{name}_csr(Tensor src, Tensor indptr, Tensor? out=None) -> {_RESULTS[name]}" for name in _SUMS),
        "gather_coo(Tensor src, Tensor index, Tensor? out=None) -> Tensor",
        "gather_csr(Tensor src, Tensor indptr, Tensor? out=None) -> Tensor",
    ),
    **named(
        sampler,
        "random_walk(Tensor rowptr, Tensor col, Tensor seed, int walk_length, float p, float q) -> Tensor",
        "subgraph(Tensor rowptr, Tensor col, Tensor nodes, bool return_edge_id=True) -> (Tensor, Tensor, Tensor?)",
        f"neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int[] num_neighbors, {_TIMES}, {_DRAWN}, "
        "bool return_edge_id=True) -> (Tensor, Tensor, Tensor, Tensor?, int[], int[])",
    ),
    **named(
        distributed,
        f"dist_neighbor_sample(Tensor rowptr, Tensor col, Tensor seed, int num_neighbors, {_TIMES}, {_DRAWN}) -> "
        "(Tensor, Tensor, int[])",
        "relabel_neighborhood(Tensor seed, Tensor sampled_nodes_with_duplicates, "
        "int[] num_sampled_neighbors_per_node, int num_nodes, Tensor? batch=None, bool csc=False, "
        "bool disjoint=False) -> (Tensor, Tensor)",
        "hetero_relabel_neighborhood(str[] node_types, (str, str, str)[] edge_types, Dict(str, Tensor) seed_dict, "
        "Dict(str, Tensor) sampled_nodes_with_duplicates_dict, "
        "Dict(str, int[][]) num_sampled_neighbors_per_node_dict, Dict(str, int) num_nodes_dict, "
        "Dict(str, Tensor)? batch_dict=None, bool csc=False, bool disjoint=False) -> "
        "(Dict(str, Tensor), Dict(str, Tensor))",
        "merge_sampler_outputs(Tensor[] node_ids, Tensor[] edge_ids, int[][] cumsum_neighbors_per_node, "
        "int[] partition_ids, int[] partition_orders, int num_partitions, int num_neighbors, Tensor? batch, "
        "bool disjoint) -> (Tensor, Tensor, Tensor?, int[])",
    ),
    **named(
        partition,
        "metis(Tensor rowptr, Tensor col, int num_partitions, Tensor? node_weight=None, Tensor? edge_weight=None, "
        "bool recursive=False) -> Tensor",
    ),
}
register("pyg", _OPERATORS)
classes.register()
