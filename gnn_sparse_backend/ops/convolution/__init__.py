"""Sparse convolution: products of rows over the pairs of a kernel map."""
