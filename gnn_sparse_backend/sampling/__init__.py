"""Neighbourhoods of nodes, drawn at random: mini-batches of a graph."""
