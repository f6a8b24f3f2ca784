"""Validates objects by the schemas of Kubernetes and of the projects that own the other kinds."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from kubernetes_validate.utils import all_versions, schema_contents
from referencing import Registry, Resource

from tests.support.helm import Object
from tests.support.npm import folder_of, install

OLDEST, NEWEST = "1.30", "1.37"
"""The chart's kubeVersion, and the newest release with published schemas."""
PACKAGES = (
    "@kubernetes-models/gateway-api@2.0.0",
    "@kubernetes-models/keda@2.0.0",
    "@kubernetes-models/prometheus-operator@6.0.0",
)
_OWN = re.compile(r"^(v1|(apps|policy|autoscaling|batch)/v\d|[a-z.]+\.k8s\.io/v\d)$")
SCRIPT = Path(__file__).with_name("custom_resources.mjs")


def problems(objects: Iterable[Object]) -> list[str]:
    """What the schemas refuse, unknown fields of Kubernetes' kinds included. An equal object is validated once."""
    unique = list({json.dumps(each, sort_keys=True): each for each in objects}.values())
    built_in = [each for each in unique if _is_built_in(each)]
    refused = [problem for version in (OLDEST, NEWEST) for each in built_in for problem in _problems(each, version)]
    return refused + _of_custom_resources([each for each in unique if not _is_built_in(each)])


def _is_built_in(each: Object) -> bool:
    return _OWN.match(each["apiVersion"]) is not None and not each["apiVersion"].startswith("gateway.")


def _problems(each: Object, version: str) -> list[str]:
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", each["apiVersion"])
    place = f"{version}: {each['kind']} {each['metadata']['name']}"
    return [
        f"{place}: {error.json_path}: {error.message[:300]}"
        for error in _validator(f"{each['kind'].lower()}-{group}.json", version).iter_errors(each)
    ]


@cache
def _validator(name: str, version: str) -> Any:
    full = next(each for each in all_versions() if each.startswith(f"{version}."))
    folder = f"kubernetes-json-schema/v{full}-local-strict"
    schema, definitions = (schema_contents(f"{folder}/{file}", full) for file in (name, "_definitions.json"))
    registry: Any = Resource.from_contents(definitions) @ (Resource.from_contents(schema) @ Registry())
    return jsonschema.Draft202012Validator(schema, registry=registry)


def _of_custom_resources(objects: Sequence[Object]) -> list[str]:
    if not objects:
        return []
    with folder_of("kubernetes-models") as folder:
        install(folder, *PACKAGES)
        script = Path(shutil.copy(SCRIPT, folder))  # Node looks for packages beside the script
        done = subprocess.run(
            ["node", str(script)], input=json.dumps(list(objects)), capture_output=True, text=True, timeout=300
        )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))
