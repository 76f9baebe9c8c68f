"""A value is found again for the same, unchanged object, and for nothing else."""

import gc
import weakref

import pytest
import torch

from gnn_sparse_backend.integrations.core.handles import Handles


class Thing:
    pass


class Value:
    pass


def test_the_same_object_and_key_find_the_value():
    handles, one, other, value = Handles(), Thing(), Thing(), Value()
    handles.put(one, value)
    handles.put(one, "by size", key=(3, 4))
    assert handles.get(one) is value and handles.get(one, (3, 4)) == "by size"
    assert handles.get(one, (4, 3)) is None and handles.get(other) is None
    handles.clear()
    assert handles.get(one) is None


def test_neither_the_object_nor_the_value_is_kept_alive():
    handles = Handles()
    for make in (Thing, lambda: torch.arange(4)):
        owner, value = make(), Value()
        gone, freed = weakref.ref(owner), weakref.ref(value)
        handles.put(owner, value)
        del owner, value
        gc.collect()
        assert gone() is None and freed() is None and len(handles) == 0


def test_an_address_used_again_is_not_the_same_object():
    handles = Handles()
    for _ in range(200):
        owner = torch.arange(6).view(2, 3)
        assert handles.get(owner) is None
        handles.put(owner, "value")
        assert handles.get(owner) == "value"
        del owner


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.add_(1),
        lambda t: t.__setitem__(0, 7),
        lambda t: t.view(-1)[:2].zero_(),  # through a view
        lambda t: t.detach().zero_(),  # through an alias
        lambda t: t.resize_(1, 3),
        lambda t: t.set_(torch.arange(6).view(2, 3)),
        lambda t: setattr(t, "data", torch.ones(2, 3, dtype=torch.int64)),
        lambda t: t.t_(),
    ],
)
def test_a_tensor_that_changed_is_not_the_same(change):
    handles, tensor = Handles(), torch.arange(6).view(2, 3)
    handles.put(tensor, "value")
    change(tensor)
    assert handles.get(tensor) is None
    handles.put(tensor, "new value")
    assert handles.get(tensor) == "new value"


def test_a_view_and_an_equal_copy_are_other_objects():
    handles, tensor = Handles(), torch.arange(6)
    handles.put(tensor, "value")
    assert handles.get(tensor[:]) is None and handles.get(tensor.clone()) is None
