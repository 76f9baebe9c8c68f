"""What a user can name: the public names and their signatures, and the operators of ``torch.ops.gsb``."""

from __future__ import annotations

import inspect

import torch

import gnn_sparse_backend as gsb
from tests.ops.operators import OPERATORS, some_graph


def found() -> dict[str, str]:
    """By name: what kind of thing it is, and its signature or schema."""
    names = {}
    for name in gsb.__all__:
        value = getattr(gsb, name)
        names[name] = str(inspect.signature(value)) if callable(value) else repr(value)
        if inspect.isclass(value):
            for member, what in inspect.getmembers(value):
                if not member.startswith("_"):
                    names[f"{name}.{member}"] = str(inspect.signature(what)) if callable(what) else type(what).__name__
    _register_all()
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("gsb::"):
            names[schema.name] = str(schema)
    return names


def _register_all() -> None:
    """Operators are defined where their modules are imported: a call of each family does that, and a traced program."""
    import gnn_sparse_backend.integrations.traced.products
    import gnn_sparse_backend.integrations.traced.slow_code
    import gnn_sparse_backend.integrations.traced.walk  # noqa: F401

    graph = some_graph()
    for name in ("spmm", "gspmm_div_sum", "edge_softmax", "attention", "segment_mm", "segment_reduce_sum"):
        OPERATORS[name].run(graph, *OPERATORS[name].operands(graph))
    rel = gsb.RelGraph.from_graph(graph, torch.zeros(graph.num_edges, dtype=torch.long), 1)
    gsb.rgms(rel, torch.ones(graph.shape[1], 2), torch.ones(1, 2, 2))
