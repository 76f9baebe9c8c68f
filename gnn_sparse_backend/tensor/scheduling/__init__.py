"""Scheduling: loops of an expression reordered, cut up, fused and put on units, by commands on statements."""
