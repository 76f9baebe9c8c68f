"""Structures with their nodes in another order, and the permutations that lead there and back."""
