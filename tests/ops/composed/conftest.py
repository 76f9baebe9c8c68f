"""Fixtures of plans."""

from tests.plan_database import plans  # noqa: F401
