"""Planted faults: one wrong line each, and the tests that ought to notice (``python -m tests.faults``)."""
