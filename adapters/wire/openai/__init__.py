"""OpenAI's wire."""
