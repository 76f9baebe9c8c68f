"""Operators on every format, each a few lines of stage I, as one writes them down."""
