"""Everything in PyTorch Geometric that passes messages or reduces by index, as cases for `tests.coverage.report`.

The cases are in these files:

    zoo_pyg_graphs.py     the graphs, and stand-ins for compiled packages
    zoo_pyg_conv.py       torch_geometric.nn.conv: sums and comparisons of neighbours
    zoo_pyg_aggr.py       the same under every aggregation
    zoo_pyg_attention.py  torch_geometric.nn.conv: attention, relations, points
    zoo_pyg_hetero.py     several types of nodes and edges at once
    zoo_pyg_reduce.py     torch_geometric.nn.aggr, and functions of torch_geometric.utils
    zoo_pyg_pool.py       pooling, normalisation, transforms
    zoo_pyg_models.py     torch_geometric.nn.models
    zoo_pyg_own.py        users' own layers
    zoo_pyg_modes.py      TorchScript, compilers, autocast, explainers
"""

from __future__ import annotations

from tests.coverage.pyg import aggr as zoo_pyg_aggr
from tests.coverage.pyg import attention as zoo_pyg_attention
from tests.coverage.pyg import conv as zoo_pyg_conv
from tests.coverage.pyg import hetero as zoo_pyg_hetero
from tests.coverage.pyg import models as zoo_pyg_models
from tests.coverage.pyg import modes as zoo_pyg_modes
from tests.coverage.pyg import own as zoo_pyg_own
from tests.coverage.pyg import pool as zoo_pyg_pool
from tests.coverage.pyg import reduce as zoo_pyg_reduce

# The pages of docs/layers/, with the cases of each.
SIMPLE = [case for case in zoo_pyg_conv.CASES if case.name.startswith("SimpleConv")]
PAGES = {
    "simple-convolutions": SIMPLE,
    "convolutions": [case for case in zoo_pyg_conv.CASES if case not in SIMPLE],
    "aggregators": zoo_pyg_aggr.CASES,
    "attention": zoo_pyg_attention.CASES,
    "heterogeneous": zoo_pyg_hetero.CASES,
    "reductions": zoo_pyg_reduce.AGGREGATIONS,
    "functions": zoo_pyg_reduce.FUNCTIONS,
    "pooling": zoo_pyg_pool.CASES,
    "models": zoo_pyg_models.CASES,
    "own-layers": zoo_pyg_own.CASES,
    "modes": zoo_pyg_modes.CASES,
}
CASES = [case for cases in PAGES.values() for case in cases]

NUMBER = "nothing is gathered and nothing is saved: one number per edge goes to one number per node"
SEEN = "PyG hands the messages to other code, which may read and change them"
SCRIPTED = "TorchScript calls nothing of ours unless GSB_TORCHSCRIPT is set"
TRANSFORMED = "the transform differentiates or records PyTorch's own operators"

# Calls that cannot run on our kernels, and why: {case, or "*" for all: {"operator: reason": why}}.
EXCEPTIONS: dict[str, dict[str, str]] = {
    "*": {
        "scatter.sum: a sum of one number per edge is no faster on a kernel": NUMBER,
        "scatter.add: a sum of one number per edge is no faster on a kernel": NUMBER,
        **{f"{name}: TorchScript compiles the layer": SCRIPTED for name in ("scatter", "segment", "softmax", "spmm")},
        "scatter.any: the reduction is 'any'": "the last written entry wins: no reduction",
    },
    "own layer, int32 index, cast by a hook": {
        "propagate: the edge index is not an ordinary int64 tensor beside the features": (
            "the hook changes what the reduction sees alone"
        )
    },
    "torch.func.grad": {
        f"{operator}: a torch.func transform is active": TRANSFORMED for operator in ("propagate", "scatter.sum")
    },
    "torch.func.vmap": {
        f"{operator}: a torch.func transform is active": TRANSFORMED for operator in ("propagate", "scatter.sum")
    },
    "torch.jit.trace, SAGEConv": {
        f"{operator}: torch.jit is tracing": TRANSFORMED for operator in ("propagate", "scatter.mean")
    },
}
