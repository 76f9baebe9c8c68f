"""Layers of MinkowskiEngine, with its names of parameters and their shapes."""
