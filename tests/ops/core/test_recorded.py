"""``torch.jit.trace`` records operators, which run on other features: sizes are tensors while it does."""

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend import nn
from tests.ops.oracle import graph_of, random


def steps(structure) -> dict:
    """A function of one tensor and the shape of that, for each operator."""
    graph, (rows, cols) = graph_of(structure), structure[2]
    torch.manual_seed(0)
    sites = torch.randint(0, 6, (200, 4)).clamp(max=5).unique(dim=0)
    sites[:, 0] = 0
    sites = sites.unique(dim=0)
    conv = nn.SubMConv(4, 3, 3).double().requires_grad_(False)
    segments = gsb.Segments.from_index(torch.randint(0, 5, (cols,)), 5)
    weight, u = random(structure[0].size, seed=1), random(rows, 4, seed=2)
    return {
        "spmm": (lambda x: gsb.spmm(graph, x, weight, "mean"), (cols, 4)),
        "max": (lambda x: gsb.spmm(graph, x, reduce="max"), (cols, 4)),
        "sddmm": (lambda x: gsb.sddmm(graph, u, x), (cols, 4)),
        "segment_reduce": (lambda x: gsb.segment_reduce(x, segments), (cols, 4)),
        "sparse_conv": (lambda x: conv(nn.SparseTensor(x, sites)).features, (len(sites), 4)),
    }


@pytest.mark.parametrize("name", ["spmm", "max", "sddmm", "segment_reduce", "sparse_conv"])
def test_what_is_recorded_runs_on_other_features(zoo, name):
    step, shape = steps(zoo["random"])[name]
    traced = torch.jit.trace(step, random(*shape), check_trace=False)
    x = random(*shape, seed=3, grad=True)
    found, wanted = traced(x), step(x)
    torch.testing.assert_close(found, wanted)
    cotangent = random(*wanted.shape, seed=4)
    torch.testing.assert_close(torch.autograd.grad(found, x, cotangent), torch.autograd.grad(wanted, x, cotangent))
