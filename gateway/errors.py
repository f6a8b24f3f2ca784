"""Errors of the gateway itself, as opposed to errors of requests (`adapters.errors`)."""


class StartError(Exception):
    """The gateway cannot start. The message is a sentence for operators."""
