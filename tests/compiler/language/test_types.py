"""The table of types says what PyTorch does of their sizes, and sums keep what values have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnn_sparse_backend.compiler.language.types import ACCUMULATOR, BYTES, FLOATS, INDEX_DTYPES, INTEGERS, TYPES
from gnn_sparse_backend.runtime.type_names import DTYPES, accumulator_of


@pytest.mark.parametrize("name", TYPES)
def test_bytes_are_those_of_the_type(name):
    assert BYTES[name] == getattr(torch, name).itemsize


@pytest.mark.parametrize("name", TYPES)
def test_an_accumulator_is_of_the_same_kind_and_has_every_value(name):
    own, wide = getattr(torch, name), getattr(torch, ACCUMULATOR[name])
    assert own.is_floating_point == wide.is_floating_point == (name in FLOATS) != (name in INTEGERS)
    # PyTorch promotes no unsigned types, and NumPy has no bfloat16
    holds = torch.promote_types(own, wide) is wide if name in FLOATS else np.can_cast(name, ACCUMULATOR[name])
    assert holds and wide.itemsize >= min(4, own.itemsize)
    assert ACCUMULATOR[ACCUMULATOR[name]] == ACCUMULATOR[name]


def test_index_types_are_integers():
    assert set(INDEX_DTYPES) <= set(INTEGERS)


def test_accumulators_of_tensors():
    wide = {torch.float64: torch.float64, torch.float32: torch.float32}
    assert {each: accumulator_of(each) for each in DTYPES.values()} == wide | dict.fromkeys(
        (torch.float16, torch.bfloat16), torch.float32
    )
    assert accumulator_of(torch.int64) is torch.float32
