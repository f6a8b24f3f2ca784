"""The models of the file over the admin API, with the facts of a catalogue and the warnings of `headrace check`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from config.catalogue.reading import catalogue
from config.checks.hosted import advise
from tests.gateway.admin.conftest import AdminDoor, OpenDoor
from tests.support.gateways import written_config

pytestmark = pytest.mark.realtime  # the catalogue is read in a thread

CATALOGUE = {
    "date": "2026-01-02",
    "sources": [],
    "providers": {
        "openai": {
            "hosts": ["api.openai.com"],
            "models": {
                "small": {"output": 100, "context": 900, "price": {"prompt": "1", "completion": "2", "cached": "0.1"},
                          "can": ["tools"], "lacks": ["vision"]},
                "fam-a": {"context": 1}, "fam-b": {"context": 2},
            },
        }
    },
}  # fmt: skip
PRICE = {"prompt": "1 usd/1M", "completion": "1 usd/1M"}
INNER = {"arms": [{"pool": "main", "weight": 1}, {"pool": "spare", "weight": 1}]}
SPLIT = {"arms": [{"pool": "main", "weight": 3}, {"name": "b", "weight": 1, "split": INNER}]}
STEPS = [{"weight": "20%", "for": "1h"}]
ROLLOUT = {"name": "move", "from": {"pool": "main"}, "to": {"model": "small"}, "steps": STEPS}
CHANGES = [{"since": "2020-01-01", "request": "2 usd"}, {"since": "2999-01-01", "request": "3 usd"}]
MODELS: list[dict[str, Any]] = [
    {"name": "small", "aliases": ["short"], "routes": [{"to": "hosted", "rewrite": {"caps": {"max_tokens": 101}}}]},
    {"name": "fam-*", "listed": ["fam-a", "fam-b"], "routes": [{"to": "hosted"}]},
    {
        "name": "own",
        "price": {**PRICE, "changes": CHANGES},
        "routes": [{"name": "first", "split": SPLIT, "fallback": ["hosted"]}],
    },
    {"name": "rolled", "routes": [{"rollout": ROLLOUT}]},
    {"name": "piped", "pipeline": {"steps": [{"name": "only", "model": "small"}]}},
]
TENANTS = [{"name": "acme", "models": ["*"]}, {"name": "beta/eu", "models": ["small", "fam-b", "piped"]}]


def served(door: AdminDoor, folder: Path, facts: Mapping[str, Any] | None = CATALOGUE, **changes: Any) -> None:
    """Put a configuration in force whose catalogue is a file."""
    if facts is not None:
        (folder / "facts.json").write_text(json.dumps(facts))
    pools = [
        {"name": "hosted", "endpoints": ["https://api.openai.com"], "probe": None},
        {"name": "other", "endpoints": [{"url": "https://api.openai.com", "model": "small"}], "probe": None},
        {"name": "main", "endpoints": ["http://127.0.0.1:9"]},
        {"name": "spare", "endpoints": ["http://127.0.0.1:9"]},
    ]
    more = {"catalogue": {"file": str(folder / "facts.json")}, "models": MODELS, "tenants": TENANTS, **changes}
    door.backend.config = written_config(pools=pools, **more)


async def models(door: AdminDoor, query: str = "", key: str | None = None) -> dict[str, dict[str, Any]]:
    status, body = await door.send("GET", f"/admin/models{query}", key)
    assert status == 200, body
    return {each["model"]: each for each in body["models"]}


async def test_every_model_has_its_pools_its_price_and_its_published_facts(
    admin_door: OpenDoor, tmp_path: Path
) -> None:
    async with admin_door() as d:
        served(d, tmp_path)
        shown = await models(d)
        assert list(shown) == ["small", "fam-*", "own", "rolled", "piped"]
        assert shown["small"]["aliases"] == ["short"]
        assert shown["small"]["published"] == [
            {"name": "small", "provider": "openai", "model": "small", "context_window": 900, "max_output_tokens": 100,
             "price": {"prompt": "1 usd/1M", "completion": "2 usd/1M", "cached": "0.1 usd/1M"},
             "abilities": ["tools"], "lacks": ["vision"]}
        ]  # fmt: skip
        assert [each["model"] for each in shown["fam-*"]["published"]] == ["fam-a", "fam-b"]
        assert shown["own"]["price"] == {"request": "2 usd", "since": "2020-01-01"}
        assert shown["own"]["published"] == []
        main = {"arm": "main", "model": None, "pools": ["main"]}
        arms = [main, {"arm": "b", "model": None, "pools": ["main", "spare"]}]
        assert shown["own"]["routes"] == [{"name": "first", "kind": "split", "fallback": ["hosted"], "arms": arms}]
        assert shown["rolled"]["routes"][0]["arms"][1] == {"arm": "small", "model": "small", "pools": []}
        assert shown["piped"]["steps"] == ["small"]


async def test_the_warnings_are_those_of_the_check(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door() as d:
        served(d, tmp_path)
        settings = d.backend.config
        file = str(d.backend.lifecycle.path)
        checked = [str(each) for each in advise(settings, file, catalogue(tmp_path / "facts.json"))]
        warnings = [each for one in (await models(d)).values() for each in one["warnings"]]
        assert [f"{file}:{each['line']}: warning: {each['path']}: {each['message']}" for each in warnings] == checked
        assert len(checked) == 2
        served(d, tmp_path, models=[{**MODELS[1], "price": PRICE}])  # a reload is seen by the next request
        assert [one["warnings"] for one in (await models(d)).values()] == [[]]


async def test_a_tenant_sees_the_models_that_it_may_use(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door(required=True) as d:
        auth = {"admin": {"required": True}}
        served(d, tmp_path, auth=auth)
        operator, own = d.backend.key(role="operator"), d.backend.key("beta/eu", role="tenant-admin")
        for_operator = await models(d, "?tenant=beta%2Feu", operator)
        for_tenant = await models(d, "", own)
        assert list(for_operator) == list(for_tenant) == ["small", "fam-*", "piped"]
        assert for_tenant["fam-*"]["listed"] == ["fam-b"]
        assert for_tenant["fam-*"]["published"] == [{"name": "fam-b", "context_window": 2}]
        assert for_operator["small"].keys() - for_tenant["small"].keys() == {"routes", "steps", "warnings"}
        assert (await d.send("GET", "/admin/models?tenant=acme", own))[0] == 403
        assert (await d.send("GET", "/admin/models?tenant=none", operator))[0] == 404
        assert (await d.send("GET", "/admin/models?model=small", operator))[0] == 400


async def test_a_tenant_sees_a_family_of_which_it_may_use_a_listed_name(admin_door: OpenDoor, tmp_path: Path) -> None:
    async with admin_door() as d:
        served(d, tmp_path, tenants=[{"name": "ends", "models": ["*-b"]}, {"name": "none", "models": ["*-c"]}])
        (shown,) = (await models(d, "?tenant=ends")).values()
        assert (shown["model"], shown["listed"]) == ("fam-*", ["fam-b"])
        assert await models(d, "?tenant=none") == {}


async def test_a_tenant_sees_neither_providers_nor_hidden_arms(admin_door: OpenDoor, tmp_path: Path) -> None:
    sent = {"to": "hosted", "rewrite": {"model": "fam-a"}, "fallback": ["other"]}
    async with admin_door(required=True) as d:
        served(d, tmp_path, auth={"admin": {"required": True}}, models=[{"name": "small", "routes": [sent]}])
        operator, own = d.backend.key(role="operator"), d.backend.key("acme", role="tenant-admin")
        assert len((await models(d, "", operator))["small"]["published"]) == 2
        assert (await models(d, "", own))["small"]["published"] == [{"name": "small", "context_window": 1}]
        served(d, tmp_path, {}, auth={"admin": {"required": True}})
        _, body = await d.send("GET", "/admin/models", own)
        assert str(tmp_path) not in json.dumps(body)
        assert body["catalogue"] == {"error": "An operator can see why the catalogue cannot be read."}


@pytest.mark.parametrize("content", [None, [], {"date": "2026"}])
async def test_a_catalogue_that_cannot_be_read_leaves_the_models(
    admin_door: OpenDoor, tmp_path: Path, content: Any
) -> None:
    async with admin_door() as d:
        served(d, tmp_path, content)
        _, body = await d.send("GET", "/admin/models")
        assert str(tmp_path / "facts.json") in body["catalogue"]["error"]
        assert [each["published"] for each in body["models"]] == [[]] * 5
        served(d, tmp_path, None, catalogue=None)
        _, body = await d.send("GET", "/admin/models")
        assert body["catalogue"]["shipped"] is True
        assert body["catalogue"]["date"] > "2026-01-02"
