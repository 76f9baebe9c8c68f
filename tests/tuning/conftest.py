"""Fixtures of plans."""

from tests.plan_database import graph, plans, serial_gpu, two_threads  # noqa: F401
