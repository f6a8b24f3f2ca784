"""The Kustomize base: it is the output of the chart, and overlays change it."""

import subprocess
from pathlib import Path

import yaml

from tests.support.helm import CHART, Object, identity, of_kind, pods, program, render
from tests.support.kubernetes_schemas import problems

BASE = Path("deploy/kustomize/base")
OVERLAY = """
resources: [{base}]
images: [{{name: headrace, newName: registry.example.org/headrace, newTag: "1.2.3"}}]
replicas: [{{name: headrace, count: 1}}]
patches:
  - target: {{kind: Deployment, name: headrace}}
    patch: '[{{"op": "replace", "path": "/spec/template/spec/terminationGracePeriodSeconds", "value": 90}}]'
"""


def kustomize(folder: Path) -> list[Object]:
    done = subprocess.run([program("kubectl"), "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.load_all(done.stdout, Loader=yaml.CSafeLoader))


def test_the_base_is_the_output_of_the_chart() -> None:
    written = [each for each in yaml.safe_load_all((BASE / "headrace.yaml").read_text()) if each is not None]
    chart = render(CHART / "examples" / "quickstart.yaml", "--namespace", "headrace", "--no-hooks")
    assert written == chart, "run: deploy/kustomize/generate.sh"


def test_kubectl_builds_the_base_and_an_overlay(tmp_path: Path) -> None:
    objects = kustomize(BASE)
    assert problems(objects) == []
    assert {each["metadata"].get("namespace", "headrace") for each in objects} == {"headrace"}
    (tmp_path / "base").symlink_to(BASE.resolve())
    copied = tmp_path / "overlay"
    copied.mkdir()
    (copied / "kustomization.yaml").write_text(OVERLAY.format(base="../base"))
    changed = kustomize(copied)
    assert [identity(each) for each in changed] == [identity(each) for each in objects]
    assert problems(changed) == []
    spec = pods(changed)["headrace"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == 90
    assert spec["containers"][0]["image"] == "registry.example.org/headrace:1.2.3"
    assert len(of_kind(changed, "Namespace")) == 1
