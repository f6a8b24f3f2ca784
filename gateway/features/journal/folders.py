"""Where the journals of a host are: with the section `usage` in its folder, else in the folder of `requests`."""

from pathlib import Path

from config.schema.config import Config
from gateway.state.local_folder import local_folder, prepare_private


def usage_folder(config: Config) -> Path:
    """The folder of `usage`, or the one that it had without a choice."""
    return local_folder(config.state.database, "usage", None if config.usage is None else config.usage.folder)


def requests_folder(config: Config) -> Path:
    """The folder of `requests`, or the one that it had without a choice."""
    return local_folder(config.state.database, "requests", None if config.requests is None else config.requests.folder)


def spool_of(config: Config) -> Path:
    """The journals in the folder of `requests`."""
    return requests_folder(config) / "spool"


def folder_of(config: Config) -> Path | None:
    """Where processes append; None without both sections."""
    if config.usage is not None:
        return usage_folder(config)
    return None if config.requests is None else spool_of(config)


def prepare_folders(config: Config) -> None:
    """Create the folders for this user alone. Raises `StartError`."""
    if config.usage is not None:
        prepare_private(usage_folder(config), "usage")
    if config.requests is not None:
        prepare_private(requests_folder(config), "requests")
