"""`/console/api/session`: shows the session, opens one with a key, and ends it. `oidc.py` opens the others.

`DELETE /console/api/sessions` ends all sessions of the person, on every gateway.
"""

import time
from typing import Any

from aiohttp import web

from adapters.errors import CredentialError
from config.schema.config import OidcConfig
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import read_object
from gateway.admin.api.guard import AdminRefused, authority
from gateway.admin.api.sessions import (
    SessionAdmission,
    SessionOver,
    SignedIn,
    check_origin,
    fingerprint,
    remove_cookie,
    session_cookie,
    set_cookie,
)
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
        return [
            web.get(path, self._show),
            web.post(path, self._open),
            web.delete(path, self._end),
            web.delete("/console/api/sessions", self._end_all),
        ]

    async def _show(self, request: web.Request) -> web.Response:
        """The session of the browser. Without one: how to sign in, and why the last session is over."""
        config = self._backend.config
        if not config.auth.admin.required:
            return web.json_response(_described(None, "this machine", ""))
        over = None
        try:
            signed_in = await self._admission.signed_in(request)
        except SessionOver as error:
            signed_in, over = None, str(error)
        if signed_in is None:
            reason = {} if over is None else {"over": over}
            return web.json_response({"signed_in": False, "oidc": config.console.oidc is not None, **reason})
        session = signed_in.session
        return web.json_response(_described(signed_in.principal, session.label, session.token))

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
        await self.begin(request, response, principal, principal.key_id)
        return response

    async def begin(
        self,
        request: web.Request,
        response: web.Response,
        principal: Principal,
        label: str,
        provider: OidcConfig | None = None,
    ) -> None:
        """Open a session for a principal with a role, and end the browser's previous one. Raises `AdminRefused`."""
        if authority(principal) == "user":
            raise AdminRefused(403, "forbidden", "this credential has no role: sign in as operator or tenant-admin")
        await self._end_previous(request)
        sessions = self._admission.sessions
        session = sessions.open(principal, label, fingerprint(provider) if provider else "")
        set_cookie(response, session_cookie(request, self._backend.config), sessions.cookie(session))
        self._note(request, principal, "console.sign_in")

    async def _end(self, request: web.Request) -> web.Response:
        check_origin(request)
        previous = await self._end_previous(request)
        if previous is not None:
            self._note(request, previous.principal, "console.sign_out")
        return self._signed_out(request)

    async def _end_all(self, request: web.Request) -> web.Response:
        check_origin(request)
        previous = await self._end_previous(request)
        if previous is None:
            raise AdminRefused(401, "session_over", "sign in first")
        await self._admission.end_all(previous.session.holder)
        self._note(request, previous.principal, "console.sign_out_everywhere")
        return self._signed_out(request)

    def _signed_out(self, request: web.Request) -> web.Response:
        response = web.json_response({"signed_in": False})
        remove_cookie(response, session_cookie(request, self._backend.config))
        return response

    async def _end_previous(self, request: web.Request) -> SignedIn | None:
        """End the session of the browser. Returns it, if there was one."""
        try:
            signed_in = await self._admission.signed_in(request)
        except SessionOver:
            return None
        if signed_in is not None:
            await self._admission.end(signed_in.session)
        return signed_in

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
