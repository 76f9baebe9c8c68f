"""Benchmarks of gnn_sparse_backend against the libraries its users would otherwise run.

Run them from the repository root: ``python -m benchmarks.spmm``, ``python -m benchmarks.graphsage``.
"""
