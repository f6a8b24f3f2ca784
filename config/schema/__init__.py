"""The sections of the configuration file, with their defaults."""
