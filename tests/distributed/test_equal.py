"""Operators on parts have the results and gradients of one process, in float64 to 1e-10."""

from __future__ import annotations

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed.methods import METHODS

from . import cases
from .processes import together


@pytest.mark.parametrize(
    "parts", [1, 2, pytest.param(3, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow)]
)
def test_operators_are_those_of_one_process(parts, tmp_path):
    folders = {}
    for kind in cases.KINDS:
        for method in METHODS:
            if method == "metis":
                pytest.importorskip("pymetis")
            folders[kind, method] = tmp_path / f"{kind} {method}"
            gsb.distributed.partition(cases.whole(kind), parts, folders[kind, method], method)
    if parts == 1:
        cases.equal_to_one_process(0, folders)
    else:
        together(parts, cases.equal_to_one_process, tmp_path, folders)
