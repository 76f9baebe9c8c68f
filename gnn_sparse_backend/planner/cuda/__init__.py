"""The rules for a GPU."""
