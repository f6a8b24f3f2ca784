"""Every adapter against servers that violate their protocol."""
