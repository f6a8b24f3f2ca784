"""Which endpoint of a pool gets a request."""
