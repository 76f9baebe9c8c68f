"""Primitives that the schedules of all targets use."""
