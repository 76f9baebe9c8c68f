"""The stage I programs of grouped products and sums."""
