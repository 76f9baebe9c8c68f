"""Relational networks."""
