"""Operators on parts have the results and gradients of one process, in float64 to 1e-10."""

from __future__ import annotations

import importlib.util
import sys

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.distributed.methods import METHODS

from . import cases
from .processes import together

_SLOW = pytest.mark.slow  # many processes
_HERE = [method for method in METHODS if method != "metis" or importlib.util.find_spec("pymetis")]


@pytest.mark.parametrize("parts", [1, *(pytest.param(parts, marks=_SLOW) for parts in (2, 3, 4))])
def test_operators_are_those_of_one_process(parts, tmp_path):
    folders = {}
    for kind in cases.KINDS:
        for method in _HERE:
            folders[kind, method] = tmp_path / f"{kind} {method}"
            gsb.distributed.partition(cases.whole(kind), parts, folders[kind, method], method)
    if parts == 1:
        cases.equal_to_one_process(0, folders)
    else:
        together(parts, cases.equal_to_one_process, tmp_path, folders)


def test_metis_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match="needs pymetis: pip install"):
        gsb.distributed.partition(cases.whole("square"), 2, tmp_path)
