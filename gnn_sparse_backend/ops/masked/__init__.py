"""Attention and products on the blocks of a mask."""
