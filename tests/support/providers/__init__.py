"""Servers on loopback that speak a provider's bytes, as strict as the provider."""
