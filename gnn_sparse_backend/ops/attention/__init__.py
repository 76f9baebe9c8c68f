"""Attention and the softmax over edges."""
