"""With GSB_SERIAL_GPU=1 all operators take the way to a GPU, and its kernels run serially on the CPU (`serial_gpu`)."""

from __future__ import annotations

import pytest
import torch

from tests.ops.recorded_gpu import recorded_gpu  # noqa: F401
from tests.ops.serial_gpu import everything_on_the_serial_gpu, owned_rows, serial_gpu  # noqa: F401


@pytest.fixture
def set_plan(monkeypatch):
    """A function: operators take this plan, or aggregations what it makes of their row groups, not the one by rules."""
    from gnn_sparse_backend.ops.core import plans
    from gnn_sparse_backend.planner.choose import plan_for
    from gnn_sparse_backend.planner.plan import Plan

    def take(plan):
        def chosen(problem, *about):
            if isinstance(plan, Plan):
                return plan
            rules = plan_for(problem, *about)
            return rules if problem.reduce == "map" else plan(rules.groups)

        monkeypatch.setattr(plans, "plan_for", chosen)

    return take


@pytest.fixture
def matmul_precision():
    """PyTorch allows tf32; a test may set another precision."""
    matmul = torch.backends.cuda.matmul
    newer, older = getattr(matmul, "fp32_precision", None), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(older)
    if newer is not None:
        matmul.fp32_precision = newer
