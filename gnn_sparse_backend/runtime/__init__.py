"""Devices, memory, layout of operands, and clocks."""
