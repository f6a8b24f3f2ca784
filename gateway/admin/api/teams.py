"""`/admin/tenants/NAME/teams`: teams of a tenant with their limits, and the teams of keys."""

import asyncio
import re
import time
from functools import partial
from typing import Any

from aiohttp import web

from config.schema.tenant import TeamConfig
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import read_json, read_object
from gateway.admin.api.guard import AdminRefused, recorded, tenant_of, visit
from gateway.auth.errors import WrongGrant
from gateway.auth.teams.limits import check_team_of_key, parse_team, with_teams

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}", re.ASCII)


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
        return web.json_response({"teams": [_shown(team, used, in_file) for team in whole.teams]})

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


def _shown(team: TeamConfig, used: dict[str, Any], in_file: set[str]) -> dict[str, Any]:
    """A team with its limits, and the remaining amounts once they are in force."""
    written = [limit.model_dump(mode="json", exclude_none=True) for limit in team.limit_list()]
    limits = used.get(team.name)
    if (
        limits is None
        or [{n: v for n, v in each.items() if n not in ("subjects", "remaining")} for each in limits] != written
    ):
        limits = written
    return {"team": team.name, "stored_in": "file" if team.name in in_file else "database", "limits": limits}
