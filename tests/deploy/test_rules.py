"""The files under `deploy/`: rules by promtool, dashboards by their generator."""

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.debian import binary

DEPLOY = Path(__file__).parents[2] / "deploy"
RUNTIME = DEPLOY.parent / "runtimes" / "tensor" / "api" / "metrics.py"
METRICS = DEPLOY.parent / "tests" / "golden" / "files" / "metrics.txt"


def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", DEPLOY / "grafana" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.dashboards())


def promtool(*arguments: str) -> None:
    program = binary("promtool", "prometheus")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_are_valid() -> None:
    promtool("check", "rules", str(DEPLOY / "prometheus" / "headrace.rules.yaml"))


def test_alerts_fire_and_rest_as_their_tests_describe() -> None:
    promtool("test", "rules", str(DEPLOY / "prometheus" / "headrace.rules.test.yaml"))


@pytest.mark.plain
def test_dashboards_are_those_of_their_source() -> None:
    files = {path.name: path.read_text() for path in (DEPLOY / "grafana").glob("*.json")}
    assert files == generated(), "run: python deploy/grafana/generate.py"


@pytest.mark.plain
def test_panels_have_places_of_their_own() -> None:
    for text in generated().values():
        taken: set[tuple[int, int]] = set()
        for panel in json.loads(text)["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert max(x for x, _ in cells) < 24
            assert not cells & taken, panel["title"]
            taken |= cells


@pytest.mark.plain
def test_every_alert_has_a_runbook_with_its_meaning_three_checks_and_a_cure() -> None:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "headrace.rules.yaml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    page = (DEPLOY.parent / "docs" / "alerts.md").read_text()
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert entries.keys() == {alert["alert"] for alert in alerts}
    for alert in alerts:
        assert alert["annotations"]["runbook_url"] == f"docs/alerts.md#{alert['alert'].lower()}"
        entry = entries[alert["alert"]]
        assert re.search(r"\*\*Meaning:\*\* .*\n\n1\. .*\n2\. .*\n3\. .*\n\n\*\*Cure:\*\* ", entry, re.DOTALL), alert


@pytest.mark.plain
def test_alerts_read_metrics_of_the_product() -> None:
    text = (DEPLOY / "prometheus" / "headrace.rules.yaml").read_text()
    families = {line.split()[0] for line in METRICS.read_text().splitlines()}
    families |= set(re.findall(r'"(headrace_tensor_\w+)"', RUNTIME.read_text()))
    expressions = re.sub(r"(?:description|summary):.*", "", text)
    names = set(re.findall(r"\b(?:headrace|gen_ai_server)_\w+(?=[\s\[{)])", expressions))
    assert len(names) > 20
    assert {name for name in names if not {name, re.sub(r"_(total|bucket)$", "", name)} & families} == set()


def expressions() -> list[str]:
    """The queries of all panels and annotations."""
    queries = []
    for text in generated().values():
        board = json.loads(text)
        queries += [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
        queries += [annotation["expr"] for annotation in board["annotations"]["list"]]
    return queries


@pytest.mark.plain
def test_queries_of_dashboards_read_the_chosen_places_and_the_chosen_currency() -> None:
    assert len(expressions()) > 100
    name = re.compile(r"\b(?:headrace|gen_ai_(?:server|client)|nv_inference)_?[\w:]*(?:\$\{currency\}\w*)?")
    for expression in expressions():
        metrics = name.findall(expression)
        assert expression.count('{namespace=~"$namespace",job=~"$job"') == len(metrics) > 0, expression
        assert "usd" not in expression
    for text in generated().values():
        names = [variable["name"] for variable in json.loads(text)["templating"]["list"]]
        assert names[:4] == ["datasource", "namespace", "job", "instance"]
        assert ("currency" in names) == ("${currency}" in text)


def test_queries_of_dashboards_are_valid(tmp_path: Path) -> None:
    values = {"$__rate_interval": "5m", "$__range": "1h", "${currency}": "eur"}
    rules = []
    for number, expression in enumerate(expressions()):
        for name, value in values.items():
            expression = expression.replace(name, value)
        rules.append({"record": f"query:{number}", "expr": expression})
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", str(file))
