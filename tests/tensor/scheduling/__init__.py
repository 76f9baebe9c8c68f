"""Scheduled statements of tensor algebra: by example, and at random."""
