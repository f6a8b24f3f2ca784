"""Limits that several gateways count together, in Redis. Needs the extra `redis`."""
