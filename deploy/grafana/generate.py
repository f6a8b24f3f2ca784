"""Writes the dashboards of `dashboards.yaml` as JSON files that Grafana imports: `python deploy/grafana/generate.py`.

A panel in the YAML has a title, a unit, and its queries by legend. Its place follows from its order: rows of 24 units,
panels of a third of a row and 8 units high unless `width` gives another width.

Each query reads only the chosen namespaces, jobs and instances: their selectors are added here. Money is that of the
chosen currency, whose name is a part of the metric's.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
HEIGHT, ROW = 8, 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
PLACES = ("namespace", "job", "instance")
_NAME = r"(?:headrace|gen_ai_(?:server|client)|nv_inference)_?[a-z0-9_:]*(?:\$\{currency\}_total)?"
METRIC = re.compile(rf"\b({_NAME})(\{{[^}}]*\}})?(?![\w{{(:])")
"""A metric in a query, and its labels. `gen_ai_request_model` and its like are labels."""
CURRENCY = {
    "name": "currency",
    "label": "Currency",
    "type": "query",
    "datasource": SOURCE,
    "query": "metrics(headrace_spend_.*_total)",
    "regex": "/headrace_spend_(.*)_total/",
    "refresh": 2,
}


def dashboards() -> dict[str, str]:
    """The text of each file, by its name."""
    described = yaml.safe_load((HERE / "dashboards.yaml").read_text())
    return {f"{each['uid']}.json": json.dumps(_dashboard(each), indent=1) + "\n" for each in described["dashboards"]}


def _dashboard(described: dict[str, Any]) -> dict[str, Any]:
    return {
        "uid": described["uid"],
        "title": described["title"],
        "description": described["description"],
        "tags": ["headrace"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables(described)},
        "annotations": {"list": [_annotation(each) for each in ANNOTATIONS]},
        "links": [{"type": "dashboards", "tags": ["headrace"], "asDropdown": True, "title": "Headrace"}],
        "panels": _panels(described["rows"]),
    }


def _variables(described: dict[str, Any]) -> list[dict[str, Any]]:
    source = described.get("source", "headrace_config_info")
    places = [{"name": name, "query": f"label_values({source}, {name})"} for name in PLACES]
    money = [CURRENCY] if "${currency}" in json.dumps(described) else []
    own = [{**each, "query": placed(each["query"])} for each in described.get("variables", ())]
    return [_source_variable(), *map(_variable, places), *money, *map(_variable, own)]


def placed(expression: str) -> str:
    """A query, or that of a variable, of the chosen places alone. A recorded rule has no instance."""

    def with_places(match: re.Match[str]) -> str:
        name, labels = match[1], (match[2] or "{}")[1:-1]
        places = PLACES[:2] if ":" in name else PLACES
        chosen = [f'{place}=~"${place}"' for place in places]
        return f"{name}{{{','.join([*chosen, *([labels] if labels else [])])}}}"

    return METRIC.sub(with_places, expression)


ANNOTATIONS = (
    {
        "name": "Configurations",
        "query": "headrace_config_info unless headrace_config_info offset 1m",
        "text": "{{instance}} has the revision {{revision}} in force",
        "color": "blue",
    },
    {
        "name": "Rollouts",
        "query": "changes(headrace_rollout_weight[1m]) > 0",
        "text": "the weight of the rollout {{rollout}} changes",
        "color": "purple",
    },
    {
        "name": "Rollouts taken back",
        "query": 'headrace_rollout_status{status="back"} > headrace_rollout_status{status="back"} offset 1m',
        "text": "the rollout {{rollout}} is taken back",
        "color": "red",
    },
)


def _annotation(described: dict[str, str]) -> dict[str, Any]:
    return {
        "name": described["name"],
        "datasource": SOURCE,
        "enable": True,
        "expr": placed(described["query"]),
        "step": "60s",
        "titleFormat": described["name"],
        "textFormat": described["text"],
        "iconColor": described["color"],
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(described: dict[str, str]) -> dict[str, Any]:
    return {
        "name": described["name"],
        "label": described["name"].capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": described["query"],
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        place = {"x": 0, "y": y, "w": ROW, "h": 1}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row["title"], "gridPos": place, "panels": []})
        x, y = 0, y + 1
        for described in row["panels"]:
            width = described.get("width", HEIGHT)
            if x + width > ROW:
                x, y = 0, y + HEIGHT
            place = {"x": x, "y": y, "w": width, "h": HEIGHT}
            panels.append(_panel(len(panels) + 1, described, place))
            x += width
        y += HEIGHT
    return panels


def _panel(number: int, described: dict[str, Any], place: dict[str, int]) -> dict[str, Any]:
    queries = [
        {
            "refId": chr(ord("A") + i),
            "expr": placed(expression),
            "legendFormat": legend,
            "datasource": SOURCE,
            "exemplar": described.get("exemplars", False),
        }
        for i, (legend, expression) in enumerate(described["queries"].items())
    ]
    kind = described.get("type", "timeseries")
    defaults: dict[str, Any] = {"unit": described["unit"], "min": described.get("min", 0)}
    if "max" in described:
        defaults["max"] = described["max"]
    made = {
        "id": number,
        "type": kind,
        "title": described["title"],
        "description": described.get("description", ""),
        "datasource": SOURCE,
        "gridPos": place,
        "targets": queries,
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    if kind == "timeseries":
        made["options"] = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}}
    return made


if __name__ == "__main__":
    for name, text in dashboards().items():
        (HERE / name).write_text(text)
