"""Stubs of providers: servers on loopback, as strict as the provider."""
