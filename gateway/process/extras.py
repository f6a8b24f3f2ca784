"""The extras of this distribution that are not installed, as its own metadata list their packages."""

import re
from collections.abc import Iterable, Iterator
from importlib import metadata

from config.extras import extras_of
from config.schema.config import Config
from gateway.process.ownership import DISTRIBUTION

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^\]]*)\])?\s*(?:(?P<sign>==|>=)(?P<version>[\d.]+))?")
_EXTRA = re.compile(r"""extra == ["']([\w-]+)["']""")


def missing_extras(config: Config) -> list[str]:
    """The extras that a configuration needs and that are not installed in full, in the order of the alphabet."""
    requirements = metadata.requires(DISTRIBUTION) or []
    return sorted(extra for extra in extras_of(config) if not is_installed(extra, requirements))


def is_installed(extra: str, requirements: Iterable[str]) -> bool:
    """Whether every package of an extra is installed in a sufficient version, those of the extras inside included."""
    requirements = list(requirements)
    return all(_is_there(requirement, requirements) for requirement in _of_extra(extra, requirements))


def _of_extra(extra: str, requirements: list[str]) -> Iterator[re.Match[str]]:
    for requirement in requirements:
        marker, parsed = _EXTRA.search(requirement), _REQUIREMENT.match(requirement)
        if marker is not None and marker[1] == extra and parsed is not None:
            yield parsed


def _is_there(requirement: re.Match[str], requirements: list[str]) -> bool:
    if requirement["name"] == DISTRIBUTION:
        return all(is_installed(extra.strip(), requirements) for extra in requirement["extras"].split(","))
    try:
        installed = _numbers(metadata.version(requirement["name"]))
    except metadata.PackageNotFoundError:
        return False
    if requirement["version"] is None:
        return True
    needed = _numbers(requirement["version"])
    return installed == needed if requirement["sign"] == "==" else installed >= needed


def _numbers(version: str) -> list[int]:
    """The numbers of a version, without a local label such as `+cpu`."""
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]
