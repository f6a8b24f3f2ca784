"""Which pool a request goes to."""
