"""Commands about servers that are not in the configuration: what one is, and whether it is spoken to rightly."""
