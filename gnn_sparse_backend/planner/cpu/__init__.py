"""The rules for a CPU."""
