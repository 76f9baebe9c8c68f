"""Attention, and products on the blocks of a mask: problems, and whoever can solve them."""
