"""Every reason for which a framework runs a call itself, and what its user can do about it.

``docs/howto/fallbacks.md`` has this table. A reason in which a name stands (a type, a function) has ``{}`` for it.
"""

from __future__ import annotations

import re

_FLOATING = "convert the features to float32, float64, bfloat16 or float16; counts and positions may stay as they are"
_ONE_TYPE = "convert all operands to one floating type on one device: .to(device, dtype)"
_ONE_DEVICE = "bring the graph and the features to one device: graph.to(device), edge_index.to(device)"
_DENSE = "give ordinary dense tensors: .to_dense(), and no subclass of torch.Tensor"
_SPARSE = "give the adjacency as a torch sparse matrix (COO, CSR or CSC) of numbers, and call .coalesce()"
_INT64 = "give the index as int64, .long(), on the device of the features"
_INTEGERS = "give a vector of int32 or int64, as long as what it numbers"
_NUMBERS = "give one number per edge, (edges,) or (edges, 1), in the features' type"
_NO_GRADIENT = "call it under torch.no_grad() where no gradient is wanted"
_TRAINED = "nothing: kernels are for what is trained, and for pooling that moves"
_NOTHING = "nothing: there is nothing to compute"
_OF_THE_USER = (
    "nothing: a layer that somebody changes or looks into is called as the framework does; its sums still run here"
)
_MEND = "mend the call: the framework's own error, or its result for such a call, follows"
_TRACED = "nothing: what records or transforms operators is given the framework's own"
_DRAWN = "nothing: MKL, or a GPU, draws other numbers than the generator of the CPU, and fast"
_COMPILING = (
    "nothing, later calls find it: gsb.wait_for_kernels() waits, as each call does without GSB_COMPILE=background"
)
_USED = (
    "use the message before the transformation begins, or leave it: what transforms operators is given "
    "the framework's own (the reason is what used the message)"
)

REMEDIES = {
    "a reduce function that does more than is known to treat each node for itself": (
        "write it with sum, mean, max and softmax over dim=1, arithmetic, activations, F.linear, cat and unsqueeze"
    ),
    "dtype {}": _FLOATING,
    "the features are {}": _FLOATING,
    "operands of two types or devices": _ONE_TYPE,
    "features of edge types differ in shape or type": _ONE_TYPE,
    "the features are no matrix of the weights' type": _ONE_TYPE,
    "the features or weights are no dense numbers on one device": _ONE_TYPE,
    "the matrix differs from the features in type or device": _ONE_TYPE,
    "the weights are no dense numbers on one device": _ONE_TYPE,
    "graph on another device": _ONE_DEVICE,
    "the edge index and the features are on two devices": _ONE_DEVICE,
    "the edge types are not beside the edge index": _ONE_DEVICE,
    "the features are not dense, or not on the device of the edges and the weights": _ONE_DEVICE,
    "device {}": "move the graph and the features to the CPU or to a GPU of CUDA",
    "CUDA kernels lack something here, see gsb doctor": "run gsb doctor, which says what to install",
    "no kernel can be made or loaded here, see gsb doctor": (
        "run gsb doctor: TMPDIR or GSB_CACHE_DIR must name a folder with room that you can write, and apache-tvm be "
        "installed, or a pack have the kernel"
    ),
    "missing, subclass or traced tensor": "give an ordinary tensor, outside of what torch.compile or torch.func traces",
    "sparse layout": _DENSE,
    "the features are a {}": _DENSE,
    "the features are not a dense matrix": _DENSE,
    "the features have layout {}": _DENSE,
    "the matrix has layout {}": _SPARSE,
    "the matrix is a {}": _SPARSE,
    "the matrix is not coalesced or its entries are not numbers": _SPARSE,
    "the edge index is not sorted for this product": "sort it once: edge_index.sort_by('row'), or 'col'",
    "the edge index is a {}": "give a dense edge index of shape (2, edges)",
    "the edge index is not an ordinary int64 tensor beside the features": _INT64,
    "the index is not one int64 per edge": _INT64,
    "the pointers are not a vector of int64": _INT64,
    "the edge types are no integers": _INTEGERS,
    "the edge types are no vector of integers": _INTEGERS,
    "the edge types are not one per edge": _INTEGERS,
    "the index is not one integer per row": _INTEGERS,
    "the lengths are not one integer per matrix": _INTEGERS,
    "the numbers of nodes are no vector of integers": _INTEGERS,
    "the offsets are no vector of integers": _INTEGERS,
    "the types are not one integer per row": _INTEGERS,
    "edge weights are not one number per edge": _NUMBERS,
    "norm is not one number per edge of the features' type": _NUMBERS,
    "the values are not one number per edge of the features' type": _NUMBERS,
    "the number of nodes is not an int": "give the number of nodes as an int",
    "the types are not sorted, as promised": "sort the rows by type, or build the layer without is_sorted",
    "several edge types": "ask for one edge type: graph[edge_type]",
    "score_mod is no expression of scores that kernels have": (
        "write it with arithmetic, comparisons, torch.where and elements of tensors; what is read of a whole tensor is "
        "computed before"
    ),
    "the largest scores are asked for": "ask for AuxRequest(lse=True) alone: kernels keep no largest scores",
    "the reduction is {}": "use a sum, a mean or a maximum, or leave it: no kernel is for this reduction here",
    "a gradient of the {} of NaN or infinities may be asked for": _NO_GRADIENT,
    "a gradient of the numbers drawn may be asked for": _NO_GRADIENT,
    "a layer has an activation, or checks degrees": "build GraphConv with activation=None, allow_zero_in_degree=True",
    "a site is there twice": "give each site once: gsb.voxelize merges points of one voxel",
    "a site is outside of the spatial shape": "leave out points beyond the grid, or give a larger spatial_shape",
    "a site is in a batch that there is not": "give batch_size as the largest batch plus one; no batch is negative",
    "the grid has too many cells": "leave out far points, or take larger voxels: less than 2**63 cells have a number",
    "the indice_key is that of a layer which spconv ran": (
        "see why the layer that has the same indice_key was left to spconv"
    ),
    "spconv takes the time of its layers": "build the SparseConvTensor without benchmark and enable_timer",
    "a pooling layer is submanifold": _TRAINED,
    "the layer is quantised, or adds another tensor": _TRAINED,
    "the product of two sparse matrices": "nothing: kernels multiply a sparse matrix by a dense one",
    "its kernel is being compiled": _COMPILING,
    "its kernel cannot be compiled": (
        "call the operator by itself, or leave GSB_COMPILE unset, which raises what keeps it from compiling"
    ),
    "the edges are so few that the framework takes no longer": "nothing: larger batches gain",
    "a sum of one number per edge is no faster on a kernel": "nothing: a sum that gathers nothing has nothing to save",
    "no edge types": _NOTHING,
    "no edges": _NOTHING,
    "no features": _NOTHING,
    "no relation has features": _NOTHING,
    "no rows": _NOTHING,
    "the features have width 0": _NOTHING,
    "the graph does not fit into memory": "give fewer nodes or edges at a time",
    "the first edge type has no edges: DGL computes nothing": "leave out the edge types without edges",
    "a layer is the user's, has hooks, is explained, decomposed or runs against its edges": _OF_THE_USER,
    "a layer is the user's, or has hooks": _OF_THE_USER,
    "the layer has hooks": _OF_THE_USER,
    "the layer is explained, decomposed or runs against its edges": _OF_THE_USER,
    "the layer's methods are the user's": _OF_THE_USER,
    "the linear layer is the user's, or has hooks": _OF_THE_USER,
    "the messages are not just summed": _OF_THE_USER,
    "a destination has no features": _MEND,
    "a layer has no weight, or two": _MEND,
    "a type is out of range": _MEND,
    "an edge type has no layer": _MEND,
    "an edge type is out of range": _MEND,
    "an index is out of range": _MEND,
    "blocks of features that are numbers": _MEND,
    "features at one end, numbers at the other": _MEND,
    "features do not broadcast": _MEND,
    "missing feature": _MEND,
    "number of rows": _MEND,
    "results of several widths for one node type": _MEND,
    "shapes differ": _MEND,
    "the features do not fit the layers": _MEND,
    "the indice_key is that of no such layer": _MEND,
    "the input is no SparseConvTensor": _MEND,
    "the lengths do not sum to the number of rows": _MEND,
    "the pointers are not those of segments": _MEND,
    "the shapes do not fit": _MEND,
    "the shapes of the edge index and the features do not fit": _MEND,
    "the shapes of the matrix and the features do not fit": _MEND,
    "there is no such dimension": _MEND,
    "there is no such dimension of nodes": _MEND,
    "unknown arguments of a layer": _MEND,
    "unknown op": _MEND,
    "unknown reduce": _MEND,
    "unknown regularizer": _MEND,
    "unknown target": _MEND,
    "a torch dispatch mode is active": _TRACED,
    "a torch.func transform is active": _TRACED,
    "forward-mode differentiation is active": _TRACED,
    "torch.compile is tracing": _TRACED,
    "torch.jit is tracing": _TRACED,
    "TorchScript compiles the layer": (
        "set GSB_TORCHSCRIPT=1 where programs are loaded by processes that import this package, or use torch.compile"
    ),
    "PyTorch draws otherwise on this processor": _DRAWN,
    "a probability for each number": "give one probability for all where they are the same: x.bernoulli_(p)",
    "the generator is not that of the CPU": _DRAWN,
    "the tensor is sparse, nested or has names": "give an ordinary dense tensor without names",
    "a score or a softmax in an expression": _USED,
    "edge_softmax": _USED,
    "edge_softmax of several edge types": _USED,
    "gather_mm": _USED,
    "gsddmm of it": _USED,
    "gsddmm {}": _USED,
    "gspmm": _USED,
    "a compiled program is called": _USED,
    "a program of TorchScript is called": _USED,
    "it is gathered": _USED,
    "it outlives its layer": _USED,
    "its gradient is asked for": _USED,
    "somebody writes to a tensor": _USED,
    "the gradient of a message that somebody looks at": _USED,
    "its reduction": _USED,
    "its segments are reduced": _USED,
    "its softmax": _USED,
    "rgms": _USED,
    "segment_mm": _USED,
    "segment_reduce": _USED,
    "the features of all edges are stored": _USED,
    "the gradient of a message that was used below autograd": _USED,
    "the message is used by {}": _USED,
    "the message is used by {} inside an autograd function or compiled code": _USED,
    "the scores of an attention": _USED,
    "the weights of an attention": _USED,
}
"""What the user can do, by reason."""


def remedy_of(reason: str) -> str | None:
    """What the user can do about a call that was left to the framework for this reason; None if nobody knows it."""
    for known in sorted(REMEDIES, key=len, reverse=True):  # the one that says more before the one that says less
        if re.fullmatch(re.escape(known).replace(r"\{\}", ".+"), reason):
            return REMEDIES[known]
    return None
