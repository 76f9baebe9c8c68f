"""Sampling: neighbours drawn at random."""
