"""Layers by chunks of rows, forward and backward, so that nothing of theirs is as large as features but what
goes in and comes out.
"""
