"""Transformations of static dense axes, the features: in tiles and lanes, shared out to threads, kept in registers."""
