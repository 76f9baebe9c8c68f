"""Preparing and measuring plans ahead of the first call, and explaining them."""
