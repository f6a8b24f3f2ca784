"""The operators' front, on its own listener."""
