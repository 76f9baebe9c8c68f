"""``gsb.gspmm`` and ``gsb.aggregate`` against torch's own gather and scatter in float64."""
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import gnn_sparse_backend as gsb
from gnn_sparse_backend.ops import build
from message_oracle import (DTYPES, EMPTY, LAYOUTS, MESSAGES, STRUCTURES, assert_close_to, case_name, covering, from_coo,
                            messages, reduced, values)

OPS = ["copy_u", "copy_e", "add", "sub", "mul", "div"]
REDUCTIONS = [("sum", "even"), ("mean", "even"), ("max", "even"), ("max", "last"), ("max", "first"), ("min", "even"),
              ("min", "last")]
FEATURES = [((), ()), ((1,), (1,)), ((7,), (7,)), ((70,), (70,)), ((3, 5), (3, 1)), ((1,), (5,)), ((2, 1, 3), (4, 1)),
            ((6,), ())]
CASES = covering({"op": OPS, "reduction": REDUCTIONS, "features": FEATURES, "dtype": DTYPES, "index": [32, 64],
                  "structure": list(STRUCTURES), "u_layout": list(LAYOUTS), "e_layout": list(LAYOUTS)})
MAGNITUDES = {**MESSAGES, "sub": torch.add}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(case_name, case)))
def test_matrix(case, monkeypatch):
    op, (reduce, ties), (u_dims, e_dims), dtype, bits, structure, u_layout, e_layout = case
    if bits == 64:
        monkeypatch.setattr(build, "INT32_LIMIT", 0)
    edges = STRUCTURES[structure]()
    graph = edges.graph
    assert graph.indices.dtype == (torch.int32 if bits == 32 else torch.int64)
    exact = {"u": LAYOUTS[u_layout](values(1, graph.shape[1], *u_dims)),
             "e": LAYOUTS[e_layout](values(2, graph.num_edges, *e_dims, power=op == "div"))}
    used = {"copy_u": "u", "copy_e": "e"}.get(op, "ue")
    given = {name: LAYOUTS[layout](exact[name].to(dtype)).requires_grad_()
             for name, layout in (("u", u_layout), ("e", e_layout)) if name in used}
    actual = gsb.gspmm(graph, op, reduce, **given, ties=ties)

    inputs = [exact[name].clone().requires_grad_() for name in used]
    expected, shares = reduced(edges, messages(edges, MESSAGES[op], used, inputs), reduce, ties, dtype)
    sizes = [exact[name].abs().requires_grad_() for name in used]
    magnitude, _ = reduced(edges, messages(edges, MAGNITUDES[op], used, sizes), reduce, ties, dtype, shares)
    assert actual.dtype == dtype and actual.is_contiguous()
    assert_close_to(actual, expected, magnitude)

    cotangent = values(3, *expected.shape)
    gradients = torch.autograd.grad(actual, list(given.values()), cotangent.to(dtype))
    wanted = torch.autograd.grad(expected, inputs, cotangent)
    bounds = torch.autograd.grad(magnitude, sizes, cotangent.abs())
    # where ties share, the share is a division in the type of the operands, by a count in that type
    roundings = 2 if ties == "even" and reduce in ("max", "min") else 0
    for gradient, right, bound in zip(gradients, wanted, bounds):
        assert gradient.dtype == dtype
        assert_close_to(gradient, right, bound, roundings)
