"""Layers over features at the sites of a grid, with 1 to 4 axes, and what stands between them."""
