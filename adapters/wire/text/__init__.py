"""Prompts and generated text."""
