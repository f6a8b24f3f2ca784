"""The fronts of the gRPC listener."""
