"""Point clouds and their segmentation: generated scenes, SemanticKITTI, and the networks of `python -m
models.minkunet`.
"""
