"""Epochs of processes that share a graph: graphs, processes, and what their times predict of more machines."""
