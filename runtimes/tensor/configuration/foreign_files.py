"""What the readers of other projects' files have in common: bounded files, and fields of the expected kinds."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from config.problem import ConfigError, Problem

MAX_BYTES: Final = 1 << 20


def mapping(path: Path, parse: Any) -> Mapping[str, Any]:
    """The object in a file. Blocks for the disk. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise refused(path, f"is larger than {MAX_BYTES >> 20} MiB")
        value = parse(content)
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError, yaml.YAMLError):
        raise refused(path, "is neither YAML nor JSON, or not UTF-8") from None
    if not isinstance(value, dict):
        raise refused(path, "must be an object")
    return value


def part(path: Path, fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = fields.get(name) or {}
    if not isinstance(part, dict):
        raise refused(path, f"`{name}` must be an object")
    return part


def text(path: Path, fields: Mapping[str, Any], name: str, default: str) -> str:
    """Raises ConfigError for a value of another kind: an alias of YAML may be of any size as text."""
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise refused(path, f"`{name}` must be text")
    return value


def refused(path: Path, reason: str) -> ConfigError:
    return ConfigError([Problem(str(path), None, "", reason)])


def local(path: Path, uri: str) -> str:
    """The path of a file from the model's folder. Empty for the usual file."""
    if "://" in uri:
        raise refused(path, f"its file is at {uri.partition('://')[0]}://…: put it beside {path.name}")
    file = posixpath.normpath(uri) if uri else "."
    if file.startswith(("/", "../")) or file == ".." or "\0" in file:
        raise refused(path, f"{uri[:100]!r} must lie in the model's own folder")
    return "" if file == "." else file


def whole(path: Path, fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name) or 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise refused(path, f"`{name}` is not a whole number")
    return value
