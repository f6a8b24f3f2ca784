"""`/console/api/session`: shows the session, opens one with a key, and ends it. `oidc.py` opens the others."""

import time
from typing import Any

from aiohttp import web

from adapters.errors import CredentialError
from config.schema.config import OidcConfig
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import read_object
from gateway.admin.api.guard import AdminRefused, authority
from gateway.admin.api.sessions import SessionAdmission, check_origin, remove_cookie, session_cookie, set_cookie
from gateway.auth.audit import Act, Actor
from gateway.auth.keys import Principal, id_of
from gateway.auth.table import REFUSED


class SignIn:
    """The handlers. Every sign-in opens a new session, whatever cookie the browser sends."""

    def __init__(self, backend: AdminBackend, admission: SessionAdmission) -> None:
        self._backend = backend
        self._admission = admission

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        path = "/console/api/session"
        return [web.get(path, self._show), web.post(path, self._open), web.delete(path, self._end)]

    async def _show(self, request: web.Request) -> web.Response:
        """The session of the browser, and how to sign in without one."""
        session = self._admission.session_of(request)
        config = self._backend.config
        if not config.auth.admin.required:
            return web.json_response(_described(None, "this machine", ""))
        if session is None:
            return web.json_response({"signed_in": False, "oidc": config.console.oidc is not None})
        return web.json_response(_described(session.principal, session.label, session.token))

    async def _open(self, request: web.Request) -> web.Response:
        check_origin(request)
        if not self._backend.config.console.enabled:
            raise AdminRefused(404, "not_found", "the console is disabled")
        body = await read_object(request, key=str)
        key = body.get("key", "").strip()
        if id_of(key) is None:
            raise CredentialError(REFUSED).because("malformed")
        principal = self._backend.authenticate(key, None, time.time())
        response = web.json_response({"signed_in": True})
        self.begin(request, response, principal, principal.key_id)
        return response

    def begin(
        self,
        request: web.Request,
        response: web.Response,
        principal: Principal,
        label: str,
        provider: OidcConfig | None = None,
    ) -> None:
        """Open a session for a principal with a role, and end the browser's previous one. Raises `AdminRefused`."""
        role = authority(principal)
        if role == "user":
            raise AdminRefused(403, "forbidden", "this credential has no role: sign in as operator or tenant-admin")
        self._forget(request)
        id, _ = self._admission.sessions.open(principal, label, provider)
        set_cookie(response, session_cookie(request, self._backend.config), id)
        self._note(request, principal, "console.sign_in")

    async def _end(self, request: web.Request) -> web.Response:
        check_origin(request)
        principal = self._forget(request)
        if principal is not None:
            self._note(request, principal, "console.sign_out")
        response = web.json_response({"signed_in": False})
        remove_cookie(response, session_cookie(request, self._backend.config))
        return response

    def _forget(self, request: web.Request) -> Principal | None:
        id = request.cookies.get(session_cookie(request, self._backend.config))
        session = self._admission.sessions.end(id) if id else None
        return None if session is None else session.principal

    def _note(self, request: web.Request, principal: Principal, action: str) -> None:
        actor = Actor(principal.key_id, authority(principal), request.remote or "")
        self._backend.note(Act(actor, action, principal.key_id))


def _described(principal: Principal | None, label: str, token: str) -> dict[str, Any]:
    """A session for the page. Without authentication, everyone on this machine is an operator."""
    role = "operator" if principal is None else authority(principal)
    tenant = None if principal is None or role == "operator" else principal.tenant
    return {
        "signed_in": True,
        "local": principal is None,
        "role": role,
        "tenant": tenant,
        "name": label,
        "token": token,
    }
