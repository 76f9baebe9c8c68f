"""Models to train: `python -m models.graphsage --help`, `models.rgcn`, and `models.minkunet` for point clouds."""
