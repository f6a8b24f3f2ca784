"""Teams in the database, on the admin API and on the command line."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from config.schema.identity import GrantConfig
from gateway.auth.audit import Actor
from gateway.auth.cli import app as keys_app
from gateway.auth.errors import NoSuchTeam, TeamConflict
from gateway.auth.keys import id_of
from gateway.auth.store import KeyStore
from gateway.auth.teams import store as stores
from gateway.auth.teams_cli import app
from tests.gateway.admin.conftest import OpenDoor, admin_door
from tests.support.gateways import PEPPER, config

__all__ = ["admin_door"]
BY = Actor("tests")
TEAMS = "/admin/tenants/acme/teams"


def test_a_team_is_stored_changed_and_removed(any_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = KeyStore(any_database, PEPPER)
    epoch = store.read_epoch()
    assert store.teams.put("acme", "search", {"requests": "1/h"}, by=BY, now=1.0)
    assert not store.teams.put("acme", "search", {"requests": "2/h"}, by=BY, now=2.0)
    assert store.read_epoch() != epoch
    (team,) = store.read_live(0.0).teams
    assert (json.loads(team.limits), team.created_at, team.changed_at) == ({"requests": "2/h"}, 1.0, 2.0)
    assert store.teams.read_all("beta") == ()
    made = store.create("acme", by=BY, now=3.0, expires_at=100.0, grant=GrantConfig(team="search"))
    rotated = store.rotate(made.id, 10.0, by=BY, now=4.0)
    assert [key.team for key in store.read_all()] == ["search", "search"]
    assert {record.principal.team for record in store.read_live(5.0).records.values()} == {"search"}
    with pytest.raises(TeamConflict, match="2 valid keys"):
        store.teams.remove("acme", "search", by=BY, now=5.0)
    store.teams.move_key("acme", rotated.id, "", by=BY, now=6.0)
    assert store.find(rotated.id).team == ""
    store.teams.remove("acme", "search", by=BY, now=50.0)  # the replaced key has ended
    with pytest.raises(NoSuchTeam):
        store.teams.remove("acme", "search", by=BY, now=50.0)
    acts = [entry.action for entry in store.read_audit(10)]
    assert acts[:2] == ["team.remove", "key.move"]
    assert acts[-2:] == ["team.change", "team.create"]
    assert not store.verify_audit().problem
    monkeypatch.setattr(stores, "MOST_TEAMS", 1)
    store.teams.put("acme", "a", {}, by=BY, now=7.0)
    with pytest.raises(TeamConflict, match="at most 1"):
        store.teams.put("acme", "b", {}, by=BY, now=7.0)
    store.close()


def test_a_database_of_an_earlier_release_gets_the_tables(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    first = KeyStore(url, PEPPER)
    made = first.create("acme", by=BY, now=1.0)
    first.close()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE team_keys"))
        connection.execute(text("DROP TABLE teams"))
    engine.dispose()
    again = KeyStore(url, PEPPER)
    assert again.find(made.id).team == ""
    assert again.teams.read_all() == ()
    again.close()


async def test_a_tenant_s_admin_sets_limits_within_its_tenant_s(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as d:
        d.backend.config = config(
            auth={"admin": {"required": True}},
            tenants=[
                {"name": "acme", "models": ["*"], "limits": {"requests": "60/min"}, "teams": [{"name": "fixed"}]},
                {"name": "beta/eu", "models": ["chat"]},
            ],
        )
        admin, user = d.backend.key(role="tenant-admin"), d.backend.key()
        status, made = await d.send("PUT", f"{TEAMS}/search", admin, {"limits": {"requests": "30/min"}})
        assert (status, made) == (201, {"team": "search", "limits": {"requests": "30/min"}})
        assert (await d.send("PUT", f"{TEAMS}/search", admin, {"limits": {"requests": "40/min"}}))[0] == 200
        status, refused = await d.send("PUT", f"{TEAMS}/search", admin, {"limits": {"requests": "61/min"}})
        assert (status, refused["error"]["param"]) == (400, "limits.requests")
        assert "61/min is beyond the 60/min of the tenant acme" in refused["error"]["message"]
        _, listed = await d.send("GET", TEAMS, admin)
        assert [(team["team"], team["stored_in"]) for team in listed["teams"]] == [
            ("fixed", "file"), ("search", "database"),
        ]  # fmt: skip
        assert listed["teams"][1]["limits"][0]["requests"] == "40/min"
        # Keys of the team.
        status, key = await d.send("POST", "/admin/tenants/acme/keys", admin, {"team": "search"})
        assert status == 201
        assert d.backend.authenticate(key["key"], None, time.time()).team == "search"
        status, refused = await d.send("POST", "/admin/tenants/acme/keys", admin, {"team": "serch"})
        assert (status, refused["error"]["param"]) == (400, "team")
        assert (await d.send("DELETE", f"{TEAMS}/search", admin))[0] == 409
        moved = f"/admin/tenants/acme/keys/{key['id']}/team"
        assert (await d.send("PUT", moved, admin, {"team": "fixed"}))[1] == {"id": key["id"], "team": "fixed"}
        assert (await d.send("DELETE", f"{TEAMS}/search", admin))[0] == 200
        assert (await d.send("DELETE", f"{TEAMS}/search", admin))[1]["error"]["code"] == "no_such_team"
        # What it may not do.
        assert (await d.send("PUT", f"{TEAMS}/fixed", admin, {"limits": {}}))[0] == 400
        assert (await d.send("DELETE", f"{TEAMS}/fixed", admin))[1]["error"]["code"] == "stored_in_file"
        assert (await d.send("PUT", "/admin/tenants/beta%2Feu/teams/x", admin, {"limits": {}}))[0] == 403
        foreign = id_of(d.backend.key("beta/eu"))
        status, refused = await d.send("PUT", f"/admin/tenants/acme/keys/{foreign}/team", admin, {"team": "fixed"})
        assert (status, refused["error"]["code"]) == (404, "no_such_key")
        for method, path in (("GET", TEAMS), ("PUT", f"{TEAMS}/x"), ("DELETE", f"{TEAMS}/x")):
            assert (await d.send(method, path, user, {} if method == "PUT" else None))[0] == 403


@pytest.mark.parametrize(
    "body", [[], {"limits": "1/h"}, {"limit": {}}, {"limits": {"requests": {}}}, b"{", {"limits": [7]}]
)
async def test_a_wrong_body_is_refused(admin_door: OpenDoor, body: Any) -> None:
    async with admin_door() as d:
        status, refused = await d.send("PUT", f"{TEAMS}/x", None, body)
        assert status == 400, refused
        assert (await d.send("PUT", f"{TEAMS}/-bad", None, {}))[0] == 400
        assert (await d.send("GET", TEAMS))[1] == {"teams": []}


def test_teams_on_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text(
        f'version: 1\nstate: {{database: "sqlite:///{tmp_path}/state/state.db"}}\n'
        "pools: [{name: pool, endpoints: [http://127.0.0.1:9]}]\n"
        "models: [{name: chat, routes: [{to: pool}], price: {request: 0.1 usd}}]\n"
        'tenants: [{name: acme, models: ["*"], limits: {spend: 50 usd/month}}]\n'
    )

    def run(*arguments: str, of: Any = app) -> tuple[int, str, str]:
        result = CliRunner().invoke(of, [*arguments, "--config", str(file)])
        return result.exit_code, result.stdout, result.stderr

    assert run("set", "acme", "search", "--spend", "10 usd/month", "--concurrency", "4")[0] == 0
    status, _, error = run("set", "acme", "search", "--spend", "51 usd/month")
    assert status == 2
    assert "51 usd/month is beyond the 50 usd/month of the tenant acme" in error
    assert run("set", "acme", "ads", "--limits", '[{"requests": "1/h", "per": "user"}]')[0] == 0
    assert run("set", "acme", "ads", "--limits", "{")[0] == 2
    assert run("set", "acme", "ads", "--limits", "{}", "--requests", "1/h")[0] == 2
    assert run("set", "acne", "ads")[0] == 2
    listed = json.loads(run("list", "--json")[1])
    assert [(team["team"], team["limits"][0]) for team in listed] == [
        ("ads", {"requests": "1/h", "per": "user"}),
        ("search", {"spend": "10 usd/month", "concurrency": 4}),
    ]
    assert "acme  search  database  spend 10 usd/month, concurrency 4" in run("list", "--tenant", "acme")[1]
    key = id_of(run("create", "--tenant", "acme", "--team", "search", of=keys_app)[1].strip()) or ""
    assert run("create", "--tenant", "acme", "--team", "x", of=keys_app)[0] == 2
    assert "team:search" in run("list", of=keys_app)[1]
    assert run("remove", "acme", "search")[0] == 1
    assert run("move", key, "x")[0] == 2
    assert run("move", key, "ads")[0] == 0
    assert run("remove", "acme", "search")[0] == 0
    assert run("remove", "acme", "search")[0] == 1
