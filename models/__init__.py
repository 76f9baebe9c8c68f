"""GraphSAGE under DGL and under PyG, with and without the backend: `python -m models.graphsage --help`."""
