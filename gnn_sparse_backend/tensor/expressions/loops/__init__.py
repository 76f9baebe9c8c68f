"""Loops over variables that come of indices: where each comes from, which of its values a loop visits."""
