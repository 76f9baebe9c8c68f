"""A staged sparse compiler for graph neural networks."""
