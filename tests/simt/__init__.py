"""CUDA source on the CPU: every thread of a block for itself, on a driver that is acted."""
