"""Models in service, and the repository they are loaded from."""
