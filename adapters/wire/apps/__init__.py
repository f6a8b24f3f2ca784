"""Tensors as the JSON of apps."""
