"""Sparse tensor algebra: problems, and whoever can solve them."""
