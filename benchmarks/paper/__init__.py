"""The tables of SparseTIR (Ye et al., ASPLOS 2023) as ours: ``python -m benchmarks.paper``."""
