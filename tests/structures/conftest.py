"""Fixtures of operators, and with GSB_SERIAL_GPU=1 the way to a GPU."""

from tests.ops.conftest import (  # noqa: F401
    everything_on_the_serial_gpu,
    matmul_precision,
    recorded_gpu,
    serial_gpu,
    set_plan,
)
