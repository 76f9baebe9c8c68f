"""Structures of millions of edges: what is made on the way counts, and a pass over them is worth a kernel."""
