"""Graphs whose edges belong to relations."""
