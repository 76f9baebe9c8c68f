"""Operators on parts have the results and gradients of one process, in float64 to 1e-10."""

from __future__ import annotations

import pickle
import sys

import pytest
import torch

import gnn_sparse_backend as gsb

from . import cases
from .processes import together

_SLOW = pytest.mark.slow  # many processes


@pytest.mark.parametrize("parts", [1, *(pytest.param(parts, marks=_SLOW) for parts in (2, 3, 4))])
def test_operators_are_those_of_one_process(parts, tmp_path):
    folders = cases.cut(cases.KINDS, parts, tmp_path)
    if parts == 1:
        cases.equal_to_one_process(0, folders)
    else:
        together(parts, cases.equal_to_one_process, tmp_path, folders)


def test_metis_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match="needs pymetis: pip install"):
        gsb.distributed.partition(cases.whole("square"), 2, tmp_path)


def test_operands_that_do_not_fit_are_refused(tmp_path):
    gsb.distributed.partition(cases.whole("square"), 1, tmp_path, "range", progress=False)
    part = gsb.distributed.DistGraph.load(tmp_path)
    x = torch.ones(23, 2)
    with pytest.raises(ValueError, match=r"spmm: operands of sources must have 23 rows.*got \(22, 2\)"):
        gsb.spmm(part, x[:22])
    with pytest.raises(ValueError, match=r"spmm: operand weight must have 120 rows.*got \(121,\)"):
        gsb.spmm(part, x, torch.ones(121))
    with pytest.raises(TypeError, match="spmm: operands of sources must be torch tensors, got list"):
        gsb.spmm(part, [1])
    with pytest.raises(ValueError, match='norm_by="src" of a DistGraph'):
        gsb.edge_softmax(part, torch.ones(120), norm_by="src")
    with pytest.raises(TypeError, match="belongs to its process"):
        pickle.dumps(part)
