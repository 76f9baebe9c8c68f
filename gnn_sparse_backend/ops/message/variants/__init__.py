"""The ways an aggregation can run."""
