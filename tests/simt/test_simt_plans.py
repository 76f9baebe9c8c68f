"""The default plans' CUDA source, thread by thread, against the CPU's kernels: ``python -m tests.simt tests/simt``.
Minutes.
"""

from __future__ import annotations

import os

import pytest
import torch

from tests import default_plans
from tests.default_plans import cases, excess
from tests.ops.operators import ROUNDING

# A thread after the other, a million edges take minutes: GSB_SIMT_LARGE=1 has them, too.
LARGE = () if os.environ.get("GSB_SIMT_LARGE") else ("large", "dense", "shared columns", "rgms by rows of the result")


@pytest.mark.parametrize(
    "case", [case for case in cases() if not any(words in case.name for words in LARGE)], ids=lambda case: case.name
)
def test_default_plans_answer_as_the_cpu(case, request):
    expected = case(torch.device("cpu"))
    default_plans.a_graph.cache_clear()  # it has the CPU's plans
    launched = request.getfixturevalue("serial_gpu")
    found = case(torch.device("cpu"))
    default_plans.a_graph.cache_clear()
    assert launched
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert excess(a, b, ROUNDING[torch.float16 if case.tf32 else b.dtype]) <= 0
