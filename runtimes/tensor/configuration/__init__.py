"""A model's configuration."""
