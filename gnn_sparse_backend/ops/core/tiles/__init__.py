"""Pieces of stage I programs: how the warps of a block load, multiply and store tiles."""
