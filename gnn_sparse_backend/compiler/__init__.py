"""The staged sparse compiler: coordinate space, position space, loops, machine code."""
