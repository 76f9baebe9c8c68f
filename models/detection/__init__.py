"""Detection in point clouds: the network of `python -m models.voxelnext`, its examples and its training."""
