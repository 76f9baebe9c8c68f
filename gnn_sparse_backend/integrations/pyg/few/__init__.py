"""Layers of PyG on graphs of a few edges: their steps as operators, and GCN's normalisation."""
