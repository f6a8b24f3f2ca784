"""Sequences of requests."""
