"""What real servers serve: programs that run in the servers' own environments."""
