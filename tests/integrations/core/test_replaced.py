"""Functions of a library that is imported already become ours, and come back."""

import sys
from types import ModuleType

import pytest
import torch

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import torch_scatter as ours

TEXT = """
def scatter_sum(src, index, dim=-1, out=None, dim_size=None):
    return "theirs"

__all__ = ["scatter_sum"]
"""


@pytest.fixture
def theirs(monkeypatch):
    """(their module, a user's that has taken a function of it)."""
    library, user = ModuleType("torch_scatter"), ModuleType("user_of_scatter")
    exec(TEXT, library.__dict__)
    user.taken = library.scatter_sum
    monkeypatch.setitem(sys.modules, "torch_scatter", library)
    monkeypatch.setitem(sys.modules, "user_of_scatter", user)
    return library, user


def test_functions_are_replaced_wherever_they_are(theirs):
    library, user = theirs
    x, index = torch.tensor([1.0, 2.0]), torch.tensor([1, 1])
    with gsb.enabled("torch_scatter"):
        assert user.taken is library.scatter_sum is ours.scatter_sum
        assert user.taken(x, index).tolist() == [0, 3]
        user.later = library.scatter_sum
        assert sys.modules["torch_scatter"] is library
    assert user.taken is user.later is library.scatter_sum and user.taken(x, index) == "theirs"
