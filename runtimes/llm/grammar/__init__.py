"""Constraints on the text of an answer."""
