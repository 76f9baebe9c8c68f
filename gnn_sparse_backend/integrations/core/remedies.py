"""Every reason for which a framework runs a call itself, and what its user can do about it.

``docs/howto/fallbacks.md`` has this table. A reason in which a name stands (a type, a function) has ``{}`` for it.
"""

from __future__ import annotations

import re

REASONS: dict[str, tuple[str, ...]] = {
    "convert the features to float32, float64, bfloat16 or float16; counts and positions may stay as they are": (
        "dtype {}",
        "the features are {}",
    ),
    "convert operands to one of these types, the same for all, with .to(dtype)": (
        "operands of two types or devices",
        "features of edge types differ in shape or type",
        "the features are no matrix of the weights' type",
        "the features or weights are no dense numbers on one device",
        "the matrix differs from the features in type or device",
        "the weights are no dense numbers on one device",
    ),
    "bring the graph and the features to one device: graph.to(device), edge_index.to(device)": (
        "graph on another device",
        "the edge index and the features are on two devices",
        "the edge types are not beside the edge index",
        "the features are not dense, or not on the device of the edges and the weights",
    ),
    "move the graph and the features to the CPU or to a GPU of CUDA": ("device {}",),
    "run gsb doctor, which says what to install": ("CUDA kernels lack something here, see gsb doctor",),
    "give an ordinary tensor, outside of what torch.compile or torch.func traces": (
        "missing, subclass or traced tensor",
    ),
    "give ordinary dense tensors: .to_dense(), and no subclass of torch.Tensor": (
        "sparse layout",
        "the features are a {}",
        "the features are not a dense matrix",
        "the features have layout {}",
    ),
    "give the adjacency as a torch sparse matrix (COO, CSR or CSC) of numbers, and call .coalesce()": (
        "the matrix has layout {}",
        "the matrix is a {}",
        "the matrix is not coalesced or its entries are not numbers",
    ),
    "sort it once: edge_index.sort_by('row'), or 'col' for the transpose": (
        "the edge index is not sorted for this product",
    ),
    "give a dense edge index of shape (2, edges)": ("the edge index is a {}",),
    "give the index as int64, .long(), on the device of the features": (
        "the edge index is not an ordinary int64 tensor beside the features",
        "the index is not one int64 per edge",
        "the pointers are not a vector of int64",
    ),
    "give a vector of int32 or int64, as long as what it numbers": (
        "the edge types are no integers",
        "the edge types are no vector of integers",
        "the edge types are not one per edge",
        "the index is not one integer per row",
        "the lengths are not one integer per matrix",
        "the numbers of nodes are no vector of integers",
        "the offsets are no vector of integers",
        "the types are not one integer per row",
    ),
    "give one number per edge, (edges,) or (edges, 1), in the features' type": (
        "edge weights are not one number per edge",
        "norm is not one number per edge of the features' type",
        "the values are not one number per edge of the features' type",
    ),
    "give the number of nodes as an int": ("the number of nodes is not an int",),
    "sort the rows by type, or build the layer without is_sorted": ("the types are not sorted, as promised",),
    "ask for one edge type: graph[edge_type]": ("several edge types",),
    "use a sum, a mean or a maximum, or leave it: no kernel is for this reduction here": ("the reduction is {}",),
    "call it under torch.no_grad() where no gradient is wanted": ("a gradient of the {} may be asked for",),
    "build GraphConv without an activation and with allow_zero_in_degree=True": (
        "a layer has an activation, or checks degrees",
    ),
    "give a site once, within the spatial shape and the batches: gsb.voxelize merges points of one voxel": (
        "indices are outside of the spatial shape or the batches, or there twice",
    ),
    "see why the layer that has the same indice_key was left to spconv": (
        "the indice_key is that of a layer which spconv ran",
    ),
    "build the SparseConvTensor without benchmark and enable_timer": ("spconv takes the time of its layers",),
    "nothing: kernels are for what is trained, and for pooling that moves": (
        "a pooling layer is submanifold",
        "the layer is quantised, or adds another tensor",
    ),
    "nothing: kernels multiply a sparse matrix by a dense one": ("the product of two sparse matrices",),
    "nothing: a sum that gathers nothing has nothing to save": (
        "a sum of one number per edge is no faster on a kernel",
    ),
    "nothing: there is nothing to compute": (
        "no edge types",
        "no edges",
        "no features",
        "no relation has features",
        "no rows",
        "the features have width 0",
    ),
    "leave out the edge types without edges": ("the first edge type has no edges: DGL computes nothing",),
    "nothing: a layer that somebody changes or looks into is called as the framework does; its sums still run here": (
        "a layer is the user's, has hooks, is explained, decomposed or runs against its edges",
        "a layer is the user's, or has hooks",
        "the layer has hooks",
        "the layer is explained, decomposed or runs against its edges",
        "the layer's methods are the user's",
        "the linear layer is the user's, or has hooks",
        "the messages are not just summed",
    ),
    "mend the call: the framework's own error, or its result for such a call, follows": (
        "a destination has no features",
        "a layer has no weight, or two",
        "a type is out of range",
        "an edge type has no layer",
        "an edge type is out of range",
        "an index is out of range",
        "blocks of features that are numbers",
        "features at one end, numbers at the other",
        "features do not broadcast",
        "missing feature",
        "number of rows",
        "results of several widths for one node type",
        "shapes differ",
        "the features do not fit the layers",
        "the indice_key is that of no such layer",
        "the input is no SparseConvTensor",
        "the kernel of a submanifold layer is even",
        "the lengths do not sum to the number of rows",
        "the pointers are not those of segments",
        "the shapes do not fit",
        "the shapes of the edge index and the features do not fit",
        "the shapes of the matrix and the features do not fit",
        "there is no such dimension",
        "there is no such dimension of nodes",
        "unknown arguments of a layer",
        "unknown op",
        "unknown reduce",
        "unknown regularizer",
        "unknown target",
    ),
    "nothing: what records or transforms operators is given the framework's own": (
        "a torch dispatch mode is active",
        "a torch.func transform is active",
        "forward-mode differentiation is active",
        "torch.compile is tracing",
        "torch.jit is tracing",
    ),
    "use the message before the transformation begins, or leave it: what transforms operators is given the framework's "
    "own (the reason is what used the message)": (
        "a score or a softmax in an expression",
        "edge_softmax",
        "edge_softmax of several edge types",
        "gather_mm",
        "gsddmm {}",
        "gspmm",
        "it is returned",
        "it leaves its local scope",
        "its layer returns it",
        "its reduction",
        "its segments are reduced",
        "its softmax",
        "rgms",
        "segment_mm",
        "segment_reduce",
        "the features of all edges are stored",
        "the gradient of a message that was used below autograd",
        "the message is the result of an autograd function",
        "the message is used by {}",
        "the message is used by {} inside an autograd function or compiled code",
        "the scores of an attention",
        "the weights of an attention",
    ),
}
"""By what the user can do: the reasons."""

_PATTERNS = sorted(
    ((reason, remedy) for remedy, reasons in REASONS.items() for reason in reasons),
    key=lambda pair: -len(pair[0]),  # the one that says more before the one that says less
)


def remedy_of(reason: str) -> str | None:
    """What the user can do about a call that was left to the framework for this reason; None if nobody knows it."""
    for pattern, remedy in _PATTERNS:
        if re.fullmatch(re.escape(pattern).replace(r"\{\}", ".+"), reason):
            return remedy
    return None
