"""Renders the result of a detection as a usable configuration."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from adapters.detection.look import DetectedPool, Detection

UNNAMED = "NAME-OF-A-MODEL"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


def written(detection: Detection, url: str, pool_fields: Mapping[str, Any] | None = None) -> str:
    """Render a complete file. `pool_fields` are the settings of the detection: `key`, `key_header`, `tls`."""
    models, left_out = list[str](), list[str]()
    for pool in detection.pools:
        for model in pool.models:
            if _NAME.fullmatch(model.name):
                entry = _flow({"name": model.name, "routes": [{"to": pool.name}]})
                models.append(f"  - {entry}{f'  # {model.description}' if model.description else ''}")
            else:
                left_out.append(model.name)
    version = f" {detection.version}" if detection.version else ""
    comments = [f"{detection.system}{version}", *detection.notes]
    comments += [
        f"Clients cannot write the model's name {name!r}: give it another, and the pool `model`." for name in left_out
    ]
    return "".join([f"# {comment}\n" for comment in comments]) + "".join(
        _lines(detection.pools, models, url, pool_fields or {})
    )


def _lines(pools: Sequence[DetectedPool], models: list[str], url: str, fields: Mapping[str, Any]) -> Iterable[str]:
    yield "version: 1\npools:\n"
    for pool in pools:
        protocol = pool.protocol["name"] if len(pool.protocol) == 1 else dict(pool.protocol)
        endpoint = url.rstrip("/").removesuffix(pool.path) + pool.path
        entry = {"name": pool.name, "protocol": protocol, "endpoints": [endpoint], **pool.more, **fields}
        yield f"  - {_flow(entry)}\n"
    if not models:
        models = [f"  - {_flow({'name': UNNAMED, 'routes': [{'to': pools[0].name}]})}  # write its name here"]
    yield "models:\n" + "".join(f"{line}\n" for line in models)
    yield 'tenants:\n  - {name: acme, models: ["*"]}\n'


def _flow(entry: Mapping[str, Any]) -> str:
    """Encode a mapping as YAML on one line."""
    return yaml.safe_dump(dict(entry), default_flow_style=True, sort_keys=False, width=10_000).strip()
