"""From the statistics of a graph, a width, a type and a target to a program, its tiling and its schedule."""
