"""Aggregations and edge maps: SpMM, SDDMM and what is made of them."""
