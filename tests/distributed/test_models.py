"""``gsb.distributed.wrap``: models of DGL and PyG train on parts as in one process."""

from __future__ import annotations

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed import DistGraph, wrap

from . import cases, models
from .processes import together


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize(("framework", "module"), [("dgl", "dgl"), ("pyg", "torch_geometric")])
def test_models_train_as_in_one_process(framework, module, parts, tmp_path):
    pytest.importorskip(module)
    folders = cases.cut(("relational", "few relational"), parts, tmp_path)
    if parts == 1:
        models.train_as_in_one_process(0, framework, folders)
    else:
        together(parts, models.train_as_in_one_process, tmp_path, framework, folders)


def test_what_cannot_be_wrapped_is_refused(tmp_path):
    gsb.distributed.partition(cases.whole("square"), 1, tmp_path / "a", "range")
    with pytest.raises(ValueError, match=r"Linear has no layer"):
        wrap(torch.nn.Linear(2, 2), DistGraph.load(tmp_path / "a"))
    gsb.distributed.partition(cases.whole("bipartite"), 1, tmp_path / "b", "range")
    with pytest.raises(ValueError, match="is bipartite"):
        wrap(torch.nn.Linear(2, 2), DistGraph.load(tmp_path / "b"))
