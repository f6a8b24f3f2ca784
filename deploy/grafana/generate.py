"""Writes the dashboards of `dashboards.yaml` as JSON files that Grafana imports: `python deploy/grafana/generate.py`.

A panel in the YAML has a title, a unit, and its queries by legend. Its place follows from its order: rows of 24 units,
panels of a third of a row and 8 units high unless `width` gives another width.
"""

import json
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
HEIGHT, ROW = 8, 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


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
        "templating": {"list": [_source_variable(), *map(_variable, described.get("variables", ()))]},
        "links": [{"type": "dashboards", "tags": ["headrace"], "asDropdown": True, "title": "Headrace"}],
        "panels": _panels(described["rows"]),
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
            "expr": expression,
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
