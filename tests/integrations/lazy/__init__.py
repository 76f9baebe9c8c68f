"""Tests of lazy tensors that no one framework owns."""
