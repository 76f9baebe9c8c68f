"""With GSB_SERIAL_GPU=1 all operators take the way to a GPU, and its kernels run serially on the CPU (`serial_gpu`)."""
from __future__ import annotations

import os

import pytest

from tests.ops.serial_gpu import serial_gpu  # noqa: F401


@pytest.fixture(autouse=True)
def everything_on_the_serial_gpu(request):
    if os.environ.get("GSB_SERIAL_GPU") == "1":
        request.getfixturevalue("serial_gpu")
