"""Sessions: who may use them, when they end, and what another site can do with a browser that has one."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.admin import front
from gateway.admin.api.endings import ENDINGS, PAUSE_SECONDS, SessionEndings
from gateway.admin.api.sessions import RENEWALS, SessionAdmission, SessionOver, Sessions, sealed_text
from gateway.admin.console.front import read_assets
from gateway.auth.keys import Principal
from gateway.auth.pepper import Seal
from gateway.auth.state import StateDatabase
from gateway.state.errors import StoreUnavailable
from tests.gateway.admin.conftest import AdminDoor, OpenDoor
from tests.support.gateways import PEPPER

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
        shown = (await b.send("GET", "/console/api/session"))[1]
        assert not shown["signed_in"]
        assert "key is not valid" in shown["over"]


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


NAME = "__Host-headrace-console"


@contextmanager
def as_public(*doors: AdminDoor, **console: Any) -> Iterator[None]:
    """The doors have one address, as behind one load balancer: their cookies have one name."""
    for door in doors:
        config = door.backend.config
        changed = {"url": "https://headrace.example.org", **console}
        door.backend.config = config.model_copy(update={"console": config.console.model_copy(update=changed)})
    yield


async def test_a_session_is_valid_on_every_replica(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as one, admin_door(required=True) as two:
        with as_public(one, two):
            b = Browser(one)
            await b.sign_in(one.backend.key(role="operator"))
            for door in (one, two) * 3:
                b.door = door
                assert (await b.send("GET", "/admin/tenants"))[0] == 200
                assert (await b.change("POST", "/admin/tenants/acme/keys", {"label": "x"}))[0] == 201


async def test_a_restart_ends_no_session(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as before:
        with as_public(before):
            b = Browser(before)
            await b.sign_in(before.backend.key(role="operator"))
    async with admin_door(required=True) as after:
        with as_public(after):
            b.door = after
            assert (await b.send("GET", "/admin/state"))[0] == 200


async def test_a_sign_out_has_effect_on_every_replica(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as one, admin_door(required=True) as two:
        with as_public(one, two):
            key, b = one.backend.key(role="operator"), Browser(one)
            await b.sign_in(key)
            stolen = b.cookie
            assert (await b.send("DELETE", "/console/api/session", **SAME))[0] == 200
            for door in (one, two):
                thief = Browser(door)
                thief.cookie = stolen
                status, body = await thief.send("GET", "/admin/state")
                assert (status, body["error"]["code"]) == (401, "session_over")


@pytest.mark.parametrize("path", ["/console/api/session", "/console/api/sessions"])
async def test_a_sign_out_counts_as_long_as_the_cookie_would(
    admin_door: OpenDoor, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    now = time.time()
    monkeypatch.setattr(front, "SessionAdmission", partial(SessionAdmission, clock=lambda: now))
    async with admin_door(required=True) as door:
        with as_public(door, idle=12 * 3600.0, longest=12 * 3600.0):
            key, b = door.backend.key(role="operator"), Browser(door)
            await b.sign_in(key)
            begun, stolen = now, b.cookie
            now += 60
            assert (await b.send("DELETE", path, **SAME))[0] == 200
            thief, now = Browser(door), now + 1
            while now < begun + 13 * 3600:
                await b.sign_in(key)  # endings that matter no longer are deleted with each new one
                assert (await b.send("DELETE", "/console/api/session", **SAME))[0] == 200
                thief.cookie = stolen
                assert (await thief.send("GET", "/admin/state"))[0] == 401, now - begun
                now += 3599


async def test_signing_out_everywhere_ends_each_session_of_the_person(admin_door: OpenDoor) -> None:
    async with admin_door(required=True) as one, admin_door(required=True) as two:
        with as_public(one, two):
            key = one.backend.key(role="operator")
            browsers = [Browser(door) for door in (one, two, one)]
            for b in browsers:
                await b.sign_in(key)
            other = Browser(two)
            await other.sign_in(one.backend.key(role="operator"))
            assert (await browsers[0].send("DELETE", "/console/api/sessions"))[0] == 403, (
                "another site may have sent it"
            )
            assert (await browsers[0].send("DELETE", "/console/api/sessions", **SAME))[0] == 200
            assert one.backend.acts[-1].action == "console.sign_out_everywhere"
            for b in browsers[1:]:
                for door in (one, two):
                    b.door = door
                    shown = (await b.send("GET", "/console/api/session"))[1]
                    assert (shown["signed_in"], shown["over"]) == (False, "You signed out.")
            assert (await other.send("GET", "/admin/state"))[0] == 200
            await browsers[1].sign_in(key)
            assert (await browsers[1].send("GET", "/admin/state"))[0] == 200, "a later sign-in is another session"
            assert (await Browser(one).send("DELETE", "/console/api/sessions", **SAME))[0] == 401


@pytest.mark.parametrize(
    ("console", "over"),
    [({"idle": 0.0}, "It was not used for 0s."), ({"longest": 0.0}, "A session ends 0s after the sign-in.")],
)
async def test_the_page_learns_why_its_session_is_over(
    admin_door: OpenDoor, console: dict[str, float], over: str
) -> None:
    async with admin_door(required=True) as door:
        b = Browser(door)
        with as_public(door):
            await b.sign_in(door.backend.key(role="operator"))
        with as_public(door, **console):
            assert (await b.send("GET", "/console/api/session"))[1] == {"signed_in": False, "oidc": False, "over": over}
            status, body = await b.send("GET", "/admin/state")
            assert (status, body["error"]["message"]) == (401, f"Your session is over. {over}")
        with as_public(door):
            for cookie in ("x", "", "=", "x" * 5000, b.cookie.partition("=")[2][:-4], "A" * 400):
                b.cookie = f"{NAME}={cookie}"
                shown = (await b.send("GET", "/console/api/session"))[1]
                assert "another secret" in shown.get("over", "another secret" if not cookie else ""), cookie


async def test_a_session_in_use_goes_on(admin_door: OpenDoor, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(front, "SessionAdmission", partial(SessionAdmission, clock=lambda: now))
    async with admin_door(required=True) as door:
        with as_public(door):
            b = Browser(door)
            await b.sign_in(door.backend.key(role="operator"))
            begun, first = now, b.cookie
            while now - begun < 12 * 3600 - 1800:
                assert (await b.send("GET", "/admin/state"))[0] == 200
                now += 1799
            assert b.cookie != first
            b.cookie, used = first, b.cookie
            assert (await b.send("GET", "/admin/state"))[0] == 401, "the cookie of its begin was not used for hours"
            b.cookie, now = used, begun + 12 * 3600
            assert (await b.send("GET", "/admin/state"))[0] == 401, "the longest time is over"


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["open", "use", "wait"]), st.integers(0, 40)), max_size=100))
def test_no_session_outlives_its_times(steps: list[tuple[str, int]]) -> None:
    now = 1_800_000_000.0
    sessions = Sessions(PEPPER, lambda: (100.0, 300.0), lambda: now)
    opened: list[tuple[str, float, float]] = []
    for step, number in steps:
        if step == "open":
            session = sessions.open(Principal("acme", f"key{number % 3}"), "")
            opened.append((sessions.cookie(session), now, now))
        elif step == "wait":
            now += number * 5
        elif opened:
            at = number % len(opened)
            cookie, began, used = opened[at]
            if now - used >= 100 or now - began >= 300:
                with pytest.raises(SessionOver):
                    sessions.read(cookie)
                continue
            renewed = sessions.renewed(sessions.read(cookie))
            assert (renewed is None) == (now - used < 100 / RENEWALS)
            if renewed is not None:
                opened[at] = (sessions.cookie(renewed), began, now)


@given(st.integers(0, 10_000), st.integers(0, 7), st.sampled_from(["flip", "cut", "add"]))
def test_no_changed_cookie_is_a_session(place: int, bit: int, change: str) -> None:
    sessions = Sessions(PEPPER, lambda: (100.0, 300.0), lambda: 0.0)
    sealed = bytearray(base64.urlsafe_b64decode(sessions.cookie(sessions.open(Principal("acme", "k"), "é")) + "=="))
    place %= len(sealed)
    if change == "flip":
        sealed[place] ^= 1 << bit
    elif change == "cut":
        del sealed[place:]
    else:
        sealed.insert(place, bit)
    with pytest.raises(SessionOver):
        sessions.read(base64.urlsafe_b64encode(bytes(sealed)).rstrip(b"=").decode())


def test_a_cookie_opens_under_its_own_secret_and_purpose_only() -> None:
    sessions = Sessions(PEPPER, lambda: (100.0, 300.0), lambda: 0.0)
    session = sessions.open(Principal("acme", "k"), "")
    assert sessions.read(sessions.cookie(session)) == session
    for cookie in (sealed_text(Seal(b"q" * 32, "console sessions"), session), sealed_text(Seal(PEPPER, "x"), session)):
        with pytest.raises(SessionOver):
            sessions.read(cookie)


async def test_an_outage_of_the_database_neither_ends_nor_revives_a_session(tmp_path: Path) -> None:
    out = False

    def database() -> StateDatabase:
        if out:
            raise StoreUnavailable("out")
        return StateDatabase(f"sqlite:///{tmp_path}/state.db", PEPPER, ENDINGS)

    one, two, until = SessionEndings(database), SessionEndings(database), time.time() + 1000
    await one.add("before", until)
    assert (await two.times("before", "other"))[1] is None
    out = True
    three = SessionEndings(database)
    await three.add("meanwhile", until)
    assert (await three.times("before", "meanwhile"))[1] is not None, "at once, in this gateway"
    assert await three.take("sign-in", until)
    assert not await three.take("sign-in", until)
    out = False
    await asyncio.sleep(PAUSE_SECONDS)
    assert None not in await three.times("before", "meanwhile", "sign-in")
    assert None not in await two.times("before", "meanwhile", "sign-in")
    assert not await two.take("sign-in", until)
    for endings in (one, two, three):
        await endings.aclose()
