"""Relational gather-matmul-scatter (RGMS)."""
