"""API keys: issuing, keeping and checking them. A request meets `keys.bearer` and `table.KeyTable` only."""
