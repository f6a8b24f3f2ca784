"""Checks between sections of the configuration file."""
