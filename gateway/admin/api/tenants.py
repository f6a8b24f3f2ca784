"""`/admin/tenants`: tenants, their keys, and their teams with limits."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from aiohttp import web

from config.schema.config import TenantConfig
from config.schema.tenant import TeamConfig
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import number_of, read_json, read_object
from gateway.admin.api.guard import AdminRefused, check_role, recorded, tenant_of, visit
from gateway.auth.audit import FILTERS
from gateway.auth.audit_cli import as_object
from gateway.auth.errors import NoSuchKey, WrongGrant
from gateway.auth.grants import check_label, models_of, parse_end, parse_grant, parse_overlap
from gateway.auth.keys import ApiKey
from gateway.auth.listing import ListedKey, listed, utc
from gateway.auth.teams.limits import check_team_of_key, parse_team, with_teams
from gateway.state.errors import StateError

T = TypeVar("T")
_OVERLAP = "24h"
_MAX_ENTRIES = 1000
_LONGEST_TEXT = 256
"""Characters of a text that is searched."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}", re.ASCII)


class Tenants:
    """The handlers. They wait for the database in separate threads, so that a slow database delays nothing else."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self._threads = ThreadPoolExecutor(2, "admin")

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        keys = "/admin/tenants/{tenant}/keys"
        return [
            web.get("/admin/tenants", self._list),
            web.get("/admin/tenants/{tenant}", self._show),
            web.get(keys, self._keys),
            web.post(keys, self._create),
            web.post(f"{keys}/{{id}}/rotate", self._rotate),
            web.put(f"{keys}/{{id}}/block", self._block),
            web.delete(f"{keys}/{{id}}/block", self._block),
            web.delete(f"{keys}/{{id}}", self._revoke),
            web.get("/admin/audit", self._audit),
        ]

    async def close(self, _: web.Application) -> None:
        """Stop the threads. Running operations end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    # ── tenants ───────────────────────────────────────────────────────────────────────────────────────

    async def _list(self, request: web.Request) -> web.Response:
        only, used = visit(request).within, await self._used()
        tenants = [t for t in self._backend.config.tenants if only in (None, t.name)]
        return web.json_response({"tenants": [self._described(t, used) for t in tenants]})

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(self._described(tenant_of(request, self._backend.config), await self._used()))

    async def _used(self) -> dict[str, dict[str, Any]]:
        used = {entry["tenant"]: entry for entry in (await self._backend.state())["tenants"]}
        try:
            stored = await self._backend.storage.read()
        except StateError:
            return used  # without the database, the limits in memory are still known
        return {name: {**used.get(name, {"tenant": name}), "storage": stored[name]} for name in stored}

    def _described(self, tenant: TenantConfig, used: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """A tenant's models, its limits with the remaining amounts, the spend of its keys, and what it stores."""
        return {"models": list(tenant.models), **used.get(tenant.name, {"tenant": tenant.name})}

    # ── keys ──────────────────────────────────────────────────────────────────────────────────────────

    async def _keys(self, request: web.Request) -> web.Response:
        """A page of the issued keys, newest first. The keys of the file follow on the last page."""
        limit = min(number_of(request, "limit") or 50, _MAX_ENTRIES)
        tenant, text = tenant_of(request, self._backend.config).name, request.query.get("text", "")
        if len(text) > _LONGEST_TEXT:
            message = f"`text` must have at most {_LONGEST_TEXT} characters"
            raise AdminRefused(400, "invalid_request", message, param="text")
        read = partial(self._backend.store.read_page, tenant, limit + 1, request.query.get("after"), text)
        try:
            page = await self._in_thread(read)
        except NoSuchKey:
            message = "`after` must be the `next` of the page before"
            raise AdminRefused(400, "invalid_request", message, param="after") from None
        following = page[limit - 1].id if len(page) > limit else None
        keys = [key for key in listed(self._backend.config, page[:limit], time.time()) if key.tenant == tenant]
        keys = [key for key in keys if following is None or key.stored_in == "database"]
        keys = [key for key in keys if key.stored_in == "database" or key.id.startswith(text)]
        used = await self._last_uses(tenant, [key.lineage or key.id for key in keys])
        shown = [
            _shown(key) | ({"last_used": used[subject]} if (subject := key.lineage or key.id) in used else {})
            for key in keys
        ]
        return web.json_response({"keys": shown, "next": following})

    async def _last_uses(self, tenant: str, keys: list[str]) -> dict[str, str]:
        """When lineages of keys were last used, as far as usage is recorded: the begin of the hour, or a day."""
        if self._backend.config.usage is None or not keys:
            return {}
        store = await self._backend.usage.store()
        return await self._in_thread(partial(store.last_uses, tenant, keys))

    async def _create(self, request: web.Request) -> web.Response:
        tenant, now = tenant_of(request, self._backend.config), time.time()
        body = await read_object(request, label=str, expires=str, role=str, scopes=dict, labels=dict, team=str)
        label, ends = body.pop("label", ""), parse_end(body.pop("expires", None), now)
        check_label(label)
        grant = parse_grant(self._backend.config, tenant, body)
        check_role(request, grant.role)
        self._check_labels(request, tenant, grant.labels)
        if grant.team is not None:
            check_team_of_key(tenant, grant.team, await self._in_thread(self._backend.store.teams.read_all))
        create = partial(self._backend.store.create, tenant.name, label, by=visit(request).actor, now=now)
        key = await self._in_thread(partial(create, expires_at=ends, grant=grant, most=self._most))
        recorded(request)
        return _issued(tenant.name, key, status=201, expires=None if ends is None else utc(ends))

    async def _rotate(self, request: web.Request) -> web.Response:
        tenant, key_id, now = tenant_of(request, self._backend.config), request.match_info["id"], time.time()
        body = await read_object(request, overlap=str, expires=str)
        overlap, ends = parse_overlap(body.get("overlap", _OVERLAP), now), parse_end(body.get("expires"), now)
        rotate = partial(self._backend.store.rotate, key_id, overlap, by=visit(request).actor, now=now)
        key = await self._in_thread(partial(rotate, expires_at=ends, tenant=tenant.name, most=self._most))
        recorded(request)
        return _issued(tenant.name, key, status=201, replaces=key_id, replaced_ends_by=utc(now + overlap))

    async def _revoke(self, request: web.Request) -> web.Response:
        tenant, key_id = tenant_of(request, self._backend.config), request.match_info["id"]
        revoke = partial(self._backend.store.revoke, key_id, by=visit(request).actor, now=time.time())
        await self._in_thread(partial(revoke, tenant=tenant.name))
        recorded(request)
        return web.json_response({"id": key_id, "tenant": tenant.name, "status": "revoked"})

    async def _block(self, request: web.Request) -> web.Response:
        tenant, key_id = tenant_of(request, self._backend.config), request.match_info["id"]
        store, blocks = self._backend.store, request.method == "PUT"
        work = partial(store.block if blocks else store.unblock, key_id, by=visit(request).actor, now=time.time())
        ids = await self._in_thread(partial(work, tenant=tenant.name))
        recorded(request)
        return web.json_response({"id": key_id, "tenant": tenant.name, "blocked": blocks, "keys": ids})

    def _check_labels(self, request: web.Request, tenant: TenantConfig, labels: Mapping[str, str]) -> None:
        """Reject labels from a tenant-admin, as labels select the routes of requests. Only routes of models that the
        tenant may use count: the others are no concern of its keys, and their labels stay unknown."""
        if visit(request).within is None:
            return
        routes = (route for model in models_of(self._backend.config, tenant) for route in model.routes)
        matched = {name for route in routes for name in route.when.label or ()}
        for name in labels:
            if name in matched:
                message = f"routes match the label `{name}`: only an operator sets it"
                raise AdminRefused(403, "forbidden", message, param=f"labels.{name}")

    # ── the audit log ─────────────────────────────────────────────────────────────────────────────────

    async def _audit(self, request: web.Request) -> web.Response:
        limit, before = number_of(request, "limit") or 100, number_of(request, "before")
        filters = {name: text for name in FILTERS if (text := request.query.get(name, "")[:_LONGEST_TEXT])}
        read = partial(self._backend.store.read_audit, min(limit, _MAX_ENTRIES), before, filters)
        return web.json_response({"entries": [as_object(entry) for entry in await self._in_thread(read)]})

    @property
    def _most(self) -> int:
        return self._backend.config.auth.keys_per_tenant

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _shown(key: ListedKey) -> dict[str, Any]:
    return {name: value for name, value in asdict(key).items() if value not in (None, "", {})}


def _issued(tenant: str, key: ApiKey, *, status: int, **more: str | None) -> web.Response:
    """The only response that contains the plaintext of a key."""
    location = f"/admin/tenants/{quote(tenant, safe='')}/keys/{key.id}"
    headers = {"Cache-Control": "no-store", "Location": location}
    return web.json_response(
        {"id": key.id, "key": key.plaintext, "tenant": tenant, **more}, status=status, headers=headers
    )


class TeamsFront:
    """The handlers. A tenant-admin manages the teams of its own tenant, within the limits of the tenant."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        teams = "/admin/tenants/{tenant}/teams"
        return [
            web.get(teams, self._list),
            web.put(f"{teams}/{{team}}", self._put),
            web.delete(f"{teams}/{{team}}", self._remove),
            web.put("/admin/tenants/{tenant}/keys/{id}/team", self._move),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        tenant = tenant_of(request, self._backend.config)
        stored = await asyncio.to_thread(self._backend.store.teams.read_all, tenant.name)
        states = [each for each in (await self._backend.state())["tenants"] if each["tenant"] == tenant.name]
        used = {team["team"]: team["limits"] for state in states for team in state.get("teams", ())}
        (whole,) = [each for each in with_teams(self._backend.config, stored) if each.name == tenant.name]
        in_file = {team.name for team in tenant.teams}
        return web.json_response({"teams": [_shown_team(team, used, in_file) for team in whole.teams]})

    async def _put(self, request: web.Request) -> web.Response:
        """Create a team, or replace all of its limits. They are in force in every process within a second."""
        tenant, name = tenant_of(request, self._backend.config), request.match_info["team"]
        if not _NAME.fullmatch(name):
            raise WrongGrant("team", "a name has up to 128 letters, digits and . _ : / - (not first)")
        body = await read_json(request)
        if not isinstance(body, dict) or set(body) - {"limits"} or not isinstance(body.get("limits", {}), dict | list):
            raise AdminRefused(400, "invalid_request", "expected an object with `limits`, as in the file")
        limits = body.get("limits", {})
        parse_team(self._backend.config, tenant, name, limits)
        put = partial(self._backend.store.teams.put, tenant.name, name, limits, by=visit(request).actor)
        is_new = await asyncio.to_thread(partial(put, now=time.time()))
        recorded(request)
        return web.json_response({"team": name, "limits": limits}, status=201 if is_new else 200)

    async def _remove(self, request: web.Request) -> web.Response:
        tenant, name = tenant_of(request, self._backend.config), request.match_info["team"]
        if any(team.name == name for team in tenant.teams):
            raise AdminRefused(409, "stored_in_file", "this team is defined in the configuration file: change it there")
        remove = partial(self._backend.store.teams.remove, tenant.name, name, by=visit(request).actor)
        await asyncio.to_thread(partial(remove, now=time.time()))
        recorded(request)
        return web.json_response({"team": name, "status": "removed"})

    async def _move(self, request: web.Request) -> web.Response:
        """Move an issued key to a team; an empty name takes it out of its team."""
        tenant, key_id = tenant_of(request, self._backend.config), request.match_info["id"]
        team = (await read_object(request, team=str)).get("team", "")
        teams = self._backend.store.teams
        if team:
            check_team_of_key(tenant, team, await asyncio.to_thread(teams.read_all, tenant.name))
        move = partial(teams.move_key, tenant.name, key_id, team, by=visit(request).actor)
        await asyncio.to_thread(partial(move, now=time.time()))
        recorded(request)
        return web.json_response({"id": key_id, "team": team})


def _shown_team(team: TeamConfig, used: dict[str, Any], in_file: set[str]) -> dict[str, Any]:
    """A team with its limits, and the remaining amounts once they are in force."""
    written = [limit.model_dump(mode="json", exclude_none=True) for limit in team.limit_list()]
    limits = used.get(team.name)
    if (
        limits is None
        or [{n: v for n, v in each.items() if n not in ("subjects", "remaining")} for each in limits] != written
    ):
        limits = written
    return {"team": team.name, "stored_in": "file" if team.name in in_file else "database", "limits": limits}
