"""DGL with the backend off is the oracle: outputs and gradients of the same computation with it on must agree."""

import dgl
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status

# Sums of a few hundred terms in another order: a few units in the last place of the largest term.
TOLERANCE = {torch.float64: dict(rtol=1e-12, atol=1e-12), torch.float32: dict(rtol=2e-5, atol=2e-5)}


def homogeneous(row, col, shape, idtype=torch.int64):
    """A square DGL graph with these edges, ids up to the larger side."""
    return dgl.graph((torch.as_tensor(col), torch.as_tensor(row)), num_nodes=max(shape), idtype=idtype)


def bipartite(row, col, shape, idtype=torch.int64):
    """A DGL graph from ``shape[1]`` sources to ``shape[0]`` destinations."""
    return dgl.heterograph(
        {("source", "to", "destination"): (torch.as_tensor(col), torch.as_tensor(row))},
        num_nodes_dict={"source": shape[1], "destination": shape[0]},
        idtype=idtype,
    )


def multigraph(nodes, edges, seed=5, idtype=torch.int64):
    """A graph of edges between random nodes, in random order, of which some are equal."""
    ends = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(seed))
    return dgl.graph((ends[0], ends[1]), num_nodes=nodes, idtype=idtype)


def run(compute, inputs, cotangent_seed=7):
    """Output of ``compute(*inputs)`` and gradients of its product with a random cotangent, by every float input."""
    leaves = [each.detach().clone().requires_grad_(True) for each in inputs]
    out = compute(*leaves)
    generator = torch.Generator().manual_seed(cotangent_seed)
    cotangent = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    parameters = list(compute.parameters()) if isinstance(compute, torch.nn.Module) else []
    gradients = torch.autograd.grad(out, leaves + parameters, cotangent, allow_unused=True)
    return [out.detach(), *gradients]


def agree(compute, *inputs):
    """Run with the backend off, then on; compare; return {operator: (ours, fallbacks)} of the second run."""
    expected = run(compute, inputs)
    with gsb.enabled("dgl"):
        reset_status()
        actual = run(compute, inputs)
        counts = calls()
    assert len(expected) == len(actual)
    for one, other in zip(actual, expected):
        if other is None:
            assert one is None
        else:
            assert one.shape == other.shape and one.dtype == other.dtype
            torch.testing.assert_close(one, other, **TOLERANCE[other.dtype])
    return counts


def calls():
    """{operator: (ours, {reason: fallbacks})} since the last reset."""
    return {
        operator: (row["ours"], row["fallbacks"])
        for operator, row in gsb.status().to_dict()["calls"].get("dgl", {}).items()
    }


def normal(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
