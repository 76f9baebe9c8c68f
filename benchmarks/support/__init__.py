"""Graphs, clocks, budgets, rooflines and tables."""
