"""Graphs and segments: immutable sparse structures, and what is derived from them."""
