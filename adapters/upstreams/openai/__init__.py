"""Servers that speak OpenAI."""
