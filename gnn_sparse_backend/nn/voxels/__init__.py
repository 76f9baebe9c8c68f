"""Layers over features at the sites of a grid, with 1 to 5 axes, and what stands between them."""
