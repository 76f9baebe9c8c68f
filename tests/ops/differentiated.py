"""Every operator as a function of small float64 tensors that is smooth there, for tests of its derivatives.

Their oracle is PyTorch's numerical differentiation, and of one transform another.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops.attention.operators import SEGMENT_SOFTMAX
from gnn_sparse_backend.ops.message.message_op import message_op
from gnn_sparse_backend.ops.message.shared_maps import SHARED_MAPS
from gnn_sparse_backend.ops.random.masked import masked
from tests.ops.operators import OPERATORS, RGMS

ROWS, COLUMNS, EDGES = 3, 3, 6
SIZES = {"heads": 1, "width": 2, "out": 2}
GRAPH = gsb.Graph.from_coo(torch.tensor([2, 0, 2, 0, 2, 2]), torch.tensor([1, 2, 0, 0, 1, 2]), (ROWS, COLUMNS))
REL = gsb.RelGraph.from_graph(GRAPH, torch.arange(EDGES) % 2, 2)
FULL = gsb.Graph.from_coo(torch.arange(EDGES) % ROWS, torch.arange(EDGES) * 3 % COLUMNS, (ROWS, COLUMNS))
KERNEL_MAP = gsb.KernelMap.from_pairs(
    torch.tensor([0, 1, 2, 0, 2]), torch.tensor([1, 0, 2, 0, 1]), torch.tensor([0, 3, 5]), (3, 3)
)
MASK = gsb.masks.causal(5, block=4)
KEPT = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 3]], dtype=torch.uint8)
Case = tuple[Callable[..., Tensor], list[Tensor]]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _on(graph, of) -> Case:
    shapes = [x.shape for x in of.operands(graph, torch.float64, **SIZES)]
    return lambda *operands: of.run(graph, *operands), [draw(*shape, seed=n) for n, shape in enumerate(shapes)]


def _shared_maps(x: Tensor, *vectors: Tensor) -> Tensor:
    return torch.cat(SHARED_MAPS(GRAPH, (x, *vectors), (message_op("mul(x0, x1)", ("edge", "all")), (False, True))), 1)


_SOFTENED = "mul(sigmoid(sub(x0, x1)), exp(x2))"
_PLACES = ("u", "v", "e")

CASES: dict[str, Case] = {
    **{name: _on(GRAPH, of) for name, of in OPERATORS.items() if name != "gspmm_last_max"},
    "gspmm_last_max": _on(FULL, OPERATORS["gspmm_last_max"]),  # a row without edges is infinite
    **{name: _on(REL, of) for name, of in RGMS.items()},
    "rgms_basis": (
        lambda x, comp, bases, a: gsb.rgms(REL, x, (comp, bases), a),
        [draw(COLUMNS, 2), draw(2, 3, seed=1), draw(3, 2, 2, seed=2), draw(EDGES, seed=3)],
    ),
    "aggregate": (
        lambda *x: gsb.aggregate(GRAPH, _SOFTENED, list(zip(_PLACES, x)), "mean"),
        [draw(COLUMNS, 2, 1), draw(ROWS, 2, seed=1), draw(EDGES, 1, 2, seed=2)],
    ),
    "prod": (lambda x: gsb.aggregate(GRAPH, "x0", [("u", x)], "prod"), [draw(COLUMNS, 2)]),
    "edge_map": (
        lambda *x: gsb.edge_map(GRAPH, _SOFTENED, list(zip(_PLACES, x)), sum_last=True),
        [draw(COLUMNS, 2), draw(ROWS, 1, seed=1), draw(EDGES, 2, seed=2)],
    ),
    "segment_softmax": (lambda s: SEGMENT_SOFTMAX(GRAPH, (s,)), [draw(EDGES, 2)]),
    "shared_maps": (_shared_maps, [draw(EDGES, 2, 2), draw(2, 2, seed=1), draw(2, 2, seed=2)]),
    "sparse_conv": (
        lambda x, w, b: gsb.sparse_conv(x, w, KERNEL_MAP, b),
        [draw(3, 2), draw(2, 2, 3, seed=1), draw(3, seed=2)],
    ),
    "sparse_attention": (
        lambda q, k, v: gsb.sparse_attention(q, k, v, MASK),
        [draw(1, 1, 5, 2, seed=seed) for seed in range(3)],
    ),
    "masked_sddmm": (lambda a, b: gsb.masked_sddmm(MASK, a, b), [draw(1, 1, 5, 2), draw(1, 1, 5, 2, seed=1)]),
    "masked": (lambda x: masked(None, (x, KEPT), (2.0, True)), [draw(3, 3)]),
}
