"""One of two numbers for each element of a mask, against PyTorch and the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnn_sparse_backend.compiler.language.interpret import interpret
from gnn_sparse_backend.ops.random.chosen import choice, chosen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_numbers_are_those_that_pytorch_chooses(dtype):
    base = torch.randint(0, 2, (40, 30, 20), dtype=torch.uint8)
    for mask in (base[0, 0, :1], base[0, :1, :].flatten(), base[:, 0, 0].clone(), base, base.permute(2, 0, 1)):
        for numbers in (torch.tensor([0.0, 1 / 0.7], dtype=dtype), torch.tensor([-torch.inf, torch.nan], dtype=dtype)):
            found = chosen(mask.clone(), numbers)
            expected = torch.where(mask.clone().bool(), numbers[1], numbers[0])
            assert found.dtype is dtype and found.stride() == expected.stride()
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_the_program_means_it():
    mask = np.random.default_rng(0).integers(0, 2, 70, dtype=np.uint8)
    given = {"Mask": mask[:64].reshape(2, 32), "Mask_rest": mask[64:], "Numbers": np.float32([-3, 5])}
    given |= {"Y": np.zeros((2, 32), np.float32), "Y_rest": np.zeros(6, np.float32), "blocks": 2, "rest": 6}
    found = interpret(choice("float32"), given)
    np.testing.assert_array_equal(np.concatenate([found["Y"].ravel(), found["Y_rest"]]), np.where(mask, 5, -3))
