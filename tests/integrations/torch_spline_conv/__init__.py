"""torch-spline-conv by its names."""
