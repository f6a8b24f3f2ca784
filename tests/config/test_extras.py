"""The extras that a configuration needs."""

from typing import Any, get_args

import pytest

from config import default_path
from config.extras import extras_of
from config.loader import load
from config.schema.runtimes.bundled import EXTRAS, BundledModel
from runtimes.tensor.catalogue.repository import CATALOGUE
from tests.support.gateways import config

GPU = {"name": "gpu", "endpoints": ["http://127.0.0.1:9"]}
CHAT = {"name": "chat", "routes": [{"to": "gpu"}]}
STEPS = {"steps": [{"name": "t", "template": "{{ text }}"}, {"name": "a", "model": "chat", "in": {"prompt": "t.text"}}]}


def test_the_bundled_models_are_those_of_the_catalogue() -> None:
    assert set(get_args(BundledModel)) == CATALOGUE.keys() == EXTRAS.keys()
    for name, entry in CATALOGUE.items():
        needed = {extra for each in (name, *entry.needs) for extra in CATALOGUE[each].extras}
        assert set(EXTRAS[name]) == needed, name  # type: ignore[index]


@pytest.mark.parametrize(
    ("sections", "extras"),
    [
        ({}, set()),
        ({"pools": [{"name": "gpu", "runtime": {"kind": "llm", "model": "bundled:m"}}]}, {"llm"}),
        ({"pools": [{"name": "gpu", "runtime": {"kind": "tensor", "repository": "models"}}]}, {"tensor"}),
        (
            {
                "pools": [
                    {
                        "name": "gpu",
                        "runtime": {"kind": "tensor", "repository": "m", "bundled": ["ocr-crop", "guard-example"]},
                    }
                ]
            },
            {"tensor", "pipelines", "torch", "embeddings"},
        ),
        (
            {"pools": [{"name": "gpu", "runtime": {"kind": "tensor", "repository": ["m", "s3://bucket/models"]}}]},
            {"tensor", "stores"},
        ),
        ({"pools": [{"name": "gpu", "runtime": {"kind": "tensor", "repository": "https://h/m.zip"}}]}, {"tensor"}),
        ({"pools": [{**GPU, "protocol": "oip-grpc"}]}, {"grpc"}),
        ({"pools": [{"name": "gpu", "discover": {"dns": "models.example.org:80"}}]}, {"discovery"}),
        ({"state": {"redis": "redis://127.0.0.1"}}, {"redis"}),
        ({"state": {"database": "postgresql://127.0.0.1/x"}}, {"postgres"}),
        ({"models": [CHAT, {"name": "whole", "pipeline": {"model": "chat"}}]}, set()),
        ({"models": [CHAT, {"name": "whole", "pipeline": STEPS}]}, {"pipelines"}),
    ],
)
def test_each_part_needs_its_extra(sections: dict[str, Any], extras: set[str]) -> None:
    base: dict[str, Any] = {"pools": [GPU], "models": [CHAT], "tenants": [{"name": "acme", "models": ["*"]}]}
    assert extras_of(config(**{**base, **sections})) == extras


def test_the_extras_of_the_packaged_configurations() -> None:
    assert extras_of(load(default_path())) == {"llm"}
    pipelines = extras_of(load(default_path().parent / "examples/pipelines.yaml"))
    assert pipelines == {"llm", "tensor", "onnx", "torch", "embeddings", "pipelines"}
