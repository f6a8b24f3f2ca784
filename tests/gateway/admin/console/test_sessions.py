"""Sessions: who may use them, when they end, and what another site can do with a browser that has one."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admin.api.sessions import MOST, MOST_OF_ONE, Sessions
from gateway.admin.console.front import read_assets
from gateway.auth.keys import Principal
from tests.gateway.admin.conftest import AdminDoor, OpenDoor

PATHS = (
    "/", "/console", "/console/", "/console/static/app.js", "/console/static/../front.py", "/livez", "/admin/state",
    "/console/static/nothing.js", "/admin/nothing", "/console/api/session",
)  # fmt: skip
SAME = {"sec_fetch_site": "same-origin"}


class Browser:
    """A browser with one cookie jar for the door."""

    def __init__(self, door: AdminDoor) -> None:
        self.door = door
        self.cookie = ""
        self.token = ""

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        sent = {"cookie": self.cookie} if self.cookie else {}
        status, reply = await self.door.send(method, path, None, body, **{**sent, **headers})
        if "set-cookie" in self.door.headers:
            self.cookie = self.door.headers["set-cookie"].partition(";")[0]
        return status, reply

    async def sign_in(self, key: str) -> None:
        assert (await self.send("POST", "/console/api/session", {"key": key}, **SAME))[0] == 200
        self.token = (await self.send("GET", "/console/api/session"))[1]["token"]

    async def change(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        return await self.send(method, path, body, **SAME, x_console_token=self.token)


@asynccontextmanager
async def signed_in(open_door: OpenDoor, tenant: str = "acme", **grant: Any) -> AsyncIterator[Browser]:
    async with open_door(required=True) as door:
        browser = Browser(door)
        await browser.sign_in(door.backend.key(tenant, **grant))
        yield browser


async def test_the_cookie_is_for_this_listener_alone(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as door:
        await door.send("POST", "/console/api/session", None, {"key": door.backend.key(role="operator")}, **SAME)
        cookie = door.headers["set-cookie"]
        port = door.url.rpartition(":")[2]
        assert cookie.startswith(f"headrace-console-{port}=")
        assert {part.strip() for part in cookie.split(";")[1:]} == {"HttpOnly", "Path=/", "SameSite=Lax"}


async def test_a_public_listener_has_a_cookie_that_only_https_carries(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as door:
        config = door.backend.config
        console = config.console.model_copy(update={"url": "https://headrace.example.org"})
        door.backend.config = config.model_copy(update={"console": console})
        await door.send("POST", "/console/api/session", None, {"key": door.backend.key(role="operator")}, **SAME)
        name, _, attributes = door.headers["set-cookie"].partition(";")
        assert name.startswith("__Host-headrace-console=")
        assert {part.strip() for part in attributes.split(";")} == {"HttpOnly", "Path=/", "SameSite=Lax", "Secure"}


async def test_a_session_has_the_rights_of_its_key(admin_door: OpenDoor) -> None:
    async with signed_in(admin_door, role="tenant-admin") as b:
        assert [t["tenant"] for t in (await b.send("GET", "/admin/tenants"))[1]["tenants"]] == ["acme"]
        for path in ("/admin/state", "/admin/audit", "/admin/tenants/beta%2Feu", "/admin/tenants/nobody"):
            assert (await b.send("GET", path))[0] == 403, path
        shown = (await b.send("GET", "/console/api/session"))[1]
        assert (shown["role"], shown["tenant"]) == ("tenant-admin", "acme")
        assert (await b.change("POST", "/admin/tenants/acme/keys", {"label": "new"}))[0] == 201


async def test_a_key_without_a_role_opens_no_session(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as door:
        sent = ("POST", "/console/api/session", None, {"key": door.backend.key()})
        assert (await door.send(*sent, **SAME))[0] == 403
        assert "set-cookie" not in door.headers


@pytest.mark.parametrize("key", ["", "hr-", "a.b.c", "hr-aaaaaaaaaaaa-" + "x" * 43, "\N{SNOWMAN}", "x" * 10_000])
async def test_a_wrong_key_opens_no_session(admin_door: OpenDoor, key: str) -> None:
    async with admin_door(required=True) as door:
        status, body = await door.send("POST", "/console/api/session", None, {"key": key}, **SAME)
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert "set-cookie" not in door.headers


async def test_a_session_ends_with_its_key(admin_door: OpenDoor) -> None:
    async with signed_in(admin_door, role="operator") as b:
        key_id = (await b.send("GET", "/console/api/session"))[1]["name"]
        assert (await b.change("DELETE", f"/admin/tenants/acme/keys/{key_id}"))[0] == 200
        assert (await b.send("GET", "/admin/state"))[0] == 401
        assert (await b.send("GET", "/console/api/session"))[1] == {"signed_in": False, "oidc": False}


async def test_a_disabled_console_has_no_pages_and_no_sessions(admin_door: OpenDoor) -> None:
    async with signed_in(admin_door, role="operator") as b:
        config = b.door.backend.config
        console = config.console.model_copy(update={"enabled": False})
        b.door.backend.config = config.model_copy(update={"console": console})
        for path in ("/console/", "/console/static/app.js"):
            assert (await b.send("GET", path))[0] == 404
        assert (await b.send("GET", "/admin/state"))[0] == 401
        assert (await b.send("POST", "/console/api/session", {"key": "x"}, **SAME))[0] == 404


@pytest.mark.parametrize("site", ["", "cross-site", "same-site", "none"])
async def test_another_site_changes_nothing(admin_door: OpenDoor, site: str) -> None:
    headers = {"sec_fetch_site": site} if site else {}
    async with signed_in(admin_door, role="operator") as b:
        status, body = await b.send(
            "POST", "/admin/tenants/acme/keys", {"label": "x"}, x_console_token=b.token, **headers
        )
        assert (status, body["error"]["code"]) == (403, "cross_site")
        assert (await b.send("DELETE", "/console/api/session", **headers))[0] == 403
        assert (await b.send("POST", "/console/api/session", {"key": "x"}, **headers))[0] == 403
        assert (await b.send("GET", "/admin/state", **headers))[0] == (403 if site.endswith("-site") else 200)


async def test_a_change_needs_the_token_of_its_own_session(admin_door: OpenDoor) -> None:
    async with signed_in(admin_door, role="operator") as b:
        other = Browser(b.door)
        await other.sign_in(b.door.backend.key(role="operator"))
        for token in ("", "x", other.token, b.token[:-1], "\N{SNOWMAN}".encode().decode("latin-1")):
            status, _ = await b.send("POST", "/admin/tenants/acme/keys", {}, **SAME, x_console_token=token)
            assert status == 403, token
        assert (await b.change("POST", "/admin/tenants/acme/keys", {}))[0] == 201


async def test_a_session_cannot_be_chosen_by_another_person(admin_door: OpenDoor) -> None:
    async with signed_in(admin_door, role="tenant-admin") as attacker:
        victim = Browser(attacker.door)
        victim.cookie = attacker.cookie
        await victim.sign_in(attacker.door.backend.key(role="operator"))
        assert victim.cookie != attacker.cookie
        assert (await attacker.send("GET", "/admin/state"))[0] == 401, "its session ended when the victim signed in"
        name = attacker.cookie.partition("=")[0]
        victim.cookie = f"{name}=chosen"
        await victim.sign_in(attacker.door.backend.key(role="operator"))
        assert "chosen" not in victim.cookie


async def test_a_credential_counts_before_a_session(admin_door: OpenDoor) -> None:
    async with signed_in(admin_door, role="operator") as b:
        user = b.door.backend.key()
        assert (await b.door.send("GET", "/admin/state", user, cookie=b.cookie))[0] == 403


async def test_every_response_is_protected(admin_door: OpenDoor) -> None:
    async with signed_in(admin_door, role="operator") as b:
        for path in PATHS:
            await b.send("GET", path)
            headers = b.door.headers
            assert headers["x-frame-options"] == "DENY", path
            assert headers["x-content-type-options"] == "nosniff", path
            policy = headers["content-security-policy"]
            assert {"default-src 'none'", "frame-ancestors 'none'"} <= set(policy.split("; ")), path
            assert not any(word in policy for word in ("unsafe", "http", "*", "data:")), path


def test_the_whole_console_is_small() -> None:
    assets = {path: asset for path, asset in read_assets().items() if not path.endswith(".txt")}
    assert sum(len(asset.compressed) for asset in assets.values()) < 150_000
    assert sum(len(asset.body) for path, asset in assets.items() if path.startswith("vendor/")) < 150_000


async def test_files_are_sent_once_and_only_those_of_the_page(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as door:
        assert (await door.send("GET", "/console/static/app.js"))[0] == 200
        tag = door.headers["etag"]
        assert (await door.send("GET", "/console/static/app.js", if_none_match=tag))[0] == 304
        assert (await door.send("GET", "/console/static/app.js", if_none_match='"other"'))[0] == 200
        for path in ("../front.py", "..%2ffront.py", "%2e%2e/front.py", "vendor", "vendor/", "", "//etc/passwd"):
            assert (await door.send("GET", f"/console/static/{path}"))[0] in (401, 404), path


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["open", "get", "wait", "end"]), st.integers(0, 40)), max_size=200))
def test_sessions_are_bounded_and_end_in_time(steps: list[tuple[str, int]]) -> None:
    now = 0.0
    sessions = Sessions(lambda: (100.0, 300.0), lambda: now)
    opened: list[tuple[str, float, float]] = []  # id, begin, last use
    for step, number in steps:
        if step == "open":
            id, _ = sessions.open(Principal("acme", f"key{number % 3}"), "")
            opened.append((id, now, now))
        elif step == "wait":
            now += number * 5
        elif opened:
            at = number % len(opened)
            id, began, used = opened[at]
            if step == "end":
                sessions.end(id)
                assert sessions.get(id) is None
                continue
            session = sessions.get(id)
            assert session is None or (now - used < 100 and now - began < 300)
            if session is not None:
                opened[at] = (id, began, now)
        for number in range(3):
            own = [s for s in sessions._sessions.values() if s.principal.key_id == f"key{number}"]
            assert len(own) <= MOST_OF_ONE


def test_the_session_unused_for_longest_gives_way() -> None:
    sessions = Sessions(lambda: (100.0, 300.0), lambda: 0.0)
    open_one: Callable[[int], str] = lambda number: sessions.open(Principal("acme", f"key{number}"), "")[0]  # noqa: E731
    ids = [open_one(number) for number in range(MOST)]
    assert sessions.get(ids[0]) is not None
    open_one(MOST)
    assert len(sessions) == MOST
    assert sessions.get(ids[0]) is not None
    assert sessions.get(ids[1]) is None
