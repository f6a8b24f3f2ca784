"""Which versions of a model are served."""

from __future__ import annotations

from collections.abc import Iterable

from runtimes.tensor.configuration.model_config import ModelConfig


class MissingVersion(Exception):
    """The configuration asks for a version that is not there."""


def served_versions(config: ModelConfig, present: Iterable[int]) -> tuple[int, ...]:
    """Those of `present` that are served, in order. What has a label is, whatever the policy says.

    Raises `MissingVersion` where a version that the configuration names is not among them.
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
