"""Decodes Ray Serve's own responses: those of its proxy and of the Serve REST API."""

from typing import Any, NamedTuple

import msgspec

from adapters.wire import decoding, proto_fields

_NO_ROUTE = b"Path '"
_routes = msgspec.json.Decoder(dict[str, str]).decode


class _Deployment(msgspec.Struct):
    status: str = ""
    message: str = ""


class _Application(msgspec.Struct):
    status: str = ""
    message: str = ""
    deployments: dict[str, _Deployment] = {}


class _Applications(msgspec.Struct):
    applications: dict[str, _Application] = {}


class _Details(msgspec.Struct):
    applications: dict[str, msgspec.Raw] = {}


class ApplicationStatus(NamedTuple):
    """An application's status in Ray Serve's terms, and its reason. The status is empty if it is not deployed."""

    name: str
    reason: str

    @property
    def state(self) -> str:
        """The status in the terms of the repository extension."""
        return _STATES.get(self.name, "UNAVAILABLE")


_STATES = {"RUNNING": "READY", "DEPLOYING": "LOADING", "NOT_STARTED": "LOADING", "DELETING": "UNLOADING"}
_applications = msgspec.json.Decoder(_Applications).decode
_details = msgspec.json.Decoder(_Details).decode


def is_no_route(body: bytes) -> bool:
    """Whether a 404 comes from the proxy instead of an application."""
    return body.startswith(_NO_ROUTE) and b"Ping http://.../-/routes" in body


def has_route(body: bytes, prefix: str) -> bool:
    """Whether `GET /-/routes` lists an application under this prefix. Raises `BackendError`."""
    return (prefix or "/") in _read(_routes, body)


def status_of(body: bytes, application: str) -> ApplicationStatus:
    """Decode the status of an application from `GET /api/serve/applications/`. Raises `BackendError`."""
    listed: _Applications = _read(_applications, body)
    status = listed.applications.get(application)
    if status is None:
        return ApplicationStatus("", "the application is not deployed")
    messages = [one.message for one in status.deployments.values() if one.status != "HEALTHY" and one.message]
    return ApplicationStatus(
        status.status, " ".join([f"the application is {status.status}.", status.message, *messages]).strip()
    )


def details_of(body: bytes, application: str) -> msgspec.Raw | None:
    """Return all details of an application; None if it is not deployed. Raises `BackendError`."""
    decoded: _Details = _read(_details, body)
    return decoded.applications.get(application)


def decode_listing(message: bytes) -> list[str]:
    """Decode the names in a ListApplicationsResponse. Raises `BackendError`."""
    with decoding.Checked(proto_fields.MalformedMessage):
        _, _, names = proto_fields.split(message, 0, proto_fields.tag(1))
        return [bytes(name).decode() for name in names]


def _read(decode: Any, body: bytes) -> Any:
    return decoding.decode(decode, body)
