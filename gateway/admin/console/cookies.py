"""The cookie of a session.

Over HTTPS the name has the prefix `__Host-`: browsers accept it only from this host over HTTPS. A listener on loopback
without TLS has a plain name with its port, as cookies do not separate ports.
"""

from aiohttp import web

from config.schema.config import Config

_PLAIN = "headrace-console"


def is_secure(config: Config) -> bool:
    """Whether browsers reach the console over HTTPS, or are required to."""
    https = (config.console.url or "").startswith("https:")
    return https or config.listen.admin_tls or not config.listen.admin.is_loopback


def session_cookie(request: web.Request, config: Config) -> str:
    """The name of the cookie with the session's id."""
    return cookie_name(request, config, _PLAIN)


def cookie_name(request: web.Request, config: Config, plain: str) -> str:
    """The name of a cookie on this listener."""
    if is_secure(config):
        return f"__Host-{plain}"
    return f"{plain}-{request.url.port or 80}"


def set_cookie(response: web.StreamResponse, name: str, value: str, max_age: int | None = None) -> None:
    """Set a cookie that only this listener reads. Without `max_age` it ends with the browser."""
    secure = name.startswith("__Host-")
    response.set_cookie(name, value, path="/", httponly=True, samesite="Lax", secure=secure, max_age=max_age)


def remove_cookie(response: web.StreamResponse, name: str) -> None:
    """Remove a cookie."""
    response.del_cookie(name, path="/", secure=name.startswith("__Host-"), httponly=True, samesite="Lax")
