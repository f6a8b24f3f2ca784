"""Text and tokens."""
