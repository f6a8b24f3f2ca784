"""The versions of a model that are served."""

from __future__ import annotations

from collections.abc import Iterable

from runtimes.tensor.configuration.model_config import ModelConfig


class MissingVersion(Exception):
    """The configuration names a version that does not exist."""


def served_versions(config: ModelConfig, present: Iterable[int]) -> tuple[int, ...]:
    """The served versions of `present`, in order. A version with a label is served under every policy.

    Raises `MissingVersion` if the configuration names a version that is not present.
    """
    there = sorted(present)
    policy = config.version_policy
    if not there:
        raise MissingVersion(f"{config.name} has no version: put its files into {config.name}/1/")
    named = {number: f"the label {label}" for label, number in config.version_labels.items()}
    if policy.kind == "specific":
        named |= dict.fromkeys(policy.versions, "the version policy")
    for number, why in sorted(named.items()):
        if number not in there:
            raise MissingVersion(
                f"{why} names version {number}, which is not there: {config.name} has {_listed(there)}"
            )
    chosen = {"latest": there[-policy.latest :], "all": there, "specific": policy.versions}[policy.kind]
    return tuple(sorted({*chosen, *config.version_labels.values()}))


def _listed(versions: list[int]) -> str:
    return ", ".join(map(str, versions[-8:]))
