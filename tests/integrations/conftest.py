"""Every test of the integrations starts and ends with the backend off and the counts at zero, and a reason that it met
is one of `remedies.REMEDIES`.

With GSB_SERIAL_GPU=1 the frameworks' layers take the way to a GPU, and its kernels run serially on the CPU
(`serial_gpu`).
"""

import pytest

import gnn_sparse_backend as gsb
from gnn_sparse_backend.integrations import reset_status
from gnn_sparse_backend.integrations.core.remedies import remedy_of
from tests.ops.recorded_gpu import recorded_gpu  # noqa: F401
from tests.ops.serial_gpu import everything_on_the_serial_gpu, serial_gpu  # noqa: F401


@pytest.fixture(autouse=True)
def switched_off():
    gsb.disable()
    reset_status()
    yield
    gsb.disable()
    met = {reason for row in gsb.status().rows for reason in row.fallbacks}
    reset_status()
    assert [reason for reason in sorted(met) if remedy_of(reason) is None] == []
