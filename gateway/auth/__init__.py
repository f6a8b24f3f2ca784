"""Who asks. A request meets `keys.bearer`, then `table.KeyTable`, `tokens.Tokens` or `certificates.Certificates`."""
