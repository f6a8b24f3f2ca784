"""Programs for real servers, which run in the servers' own environments."""
