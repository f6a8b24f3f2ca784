"""Every adapter against servers that do what no server should."""
