"""Layers and whole training steps."""
