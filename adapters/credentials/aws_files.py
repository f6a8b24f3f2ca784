"""The files of AWS's tools: `~/.aws/config` and `~/.aws/credentials`."""

import configparser
import os

from adapters.credentials.renewed import RenewalError


def profiles() -> dict[str, dict[str, str]]:
    """The profiles of both files, by name. Those of the credentials come first, field by field. Reads files.

    Raises `RenewalError` for a file that is not of this form; a missing file is empty.
    """
    merged: dict[str, dict[str, str]] = {}
    config = os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    for section, fields in _read(config).items():
        kind, _, name = section.partition(" ")
        if section == "default" or kind == "profile":
            merged.setdefault(name.strip().strip("'\"") or section, {}).update(fields)
    credentials = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    for section, fields in _read(credentials).items():
        merged.setdefault(section, {}).update(fields)
    return merged


def region() -> str | None:
    """The region of the environment, or of its profile; None without one."""
    environment = os.environ
    if named := environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION"):
        return named
    try:
        profile = environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or "default"
        return profiles().get(profile, {}).get("region")
    except RenewalError:
        return None


def _read(path: str) -> dict[str, dict[str, str]]:
    path = os.path.expanduser(path)
    parser = configparser.RawConfigParser(default_section="\0", strict=False)
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, configparser.Error) as error:
        # Its message would repeat the line, which may have a key.
        raise RenewalError(f"{path} cannot be read: {type(error).__name__}") from None
    return {section: dict(parser[section]) for section in parser.sections()}
