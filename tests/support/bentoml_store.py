"""Models as `bentoml.….save_model` writes them (1.4.40), without BentoML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def bento_model(
    store: Path,
    tag: str,
    module: str,
    *,
    options: dict[str, Any] | None = None,
    created: str = "2026-11-29T11:40:09.123229+00:00",
    **signatures: Any,
) -> Path:
    """The folder of a version `NAME:VERSION`, with its `model.yaml`, which becomes the latest. Signatures by method."""
    name, _, version = tag.partition(":")
    folder = store / name / version
    folder.mkdir(parents=True)
    framework = module.removeprefix("bentoml.")
    document = {
        "name": name,
        "version": version,
        "module": module,
        "labels": {"stage": "dev"},
        "options": options or {},
        "metadata": {},
        "context": {
            "framework_name": framework, "framework_versions": {framework: "1.0"}, "bentoml_version": "1.4.40",
            "python_version": "3.11.7",
        },
        "signatures": signatures,
        "api_version": "v2" if framework == "xgboost" else "v1",
        "creation_time": created,
    }  # fmt: skip
    (folder / "model.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    (store / name / "latest").write_text(version)
    return folder


PREDICT: dict[str, Any] = {"predict": {"batchable": False}}
BATCHED: dict[str, Any] = {"predict": {"batchable": True, "batch_dim": [0, 0]}}
