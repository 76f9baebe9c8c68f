"""Where kernels are not their CUDA source (`python -m tests.simt`), the default plans are not run by it."""

from __future__ import annotations

import os

from tests.ops.serial_gpu import serial_gpu  # noqa: F401

collect_ignore = [] if os.environ.get("GSB_SIMT") == "1" else ["test_simt_plans.py"]
