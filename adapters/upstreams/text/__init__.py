"""Servers that generate text from a prompt."""
