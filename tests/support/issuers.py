"""A token issuer: real keys, a JWKS server on loopback, and tokens, right and wrong."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as new_rsa
from jwt.algorithms import get_default_algorithms

ISSUER = "https://login.example.org/"
AUDIENCE = "headrace"
PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey


class SigningKey:
    """A key pair with its id."""

    def __init__(self, algorithm: str, kid: str | None = None, *, bits: int = 2048) -> None:
        self.algorithm = algorithm
        self.kid = kid or f"{algorithm}-key"
        self.private: PrivateKey
        if algorithm.startswith("ES"):
            self.private = new_ec(SECP256R1())
        elif algorithm == "EdDSA":
            self.private = Ed25519PrivateKey.generate()
        else:
            self.private = new_rsa(65537, bits)

    def jwk(self, *, private: bool = False, **changes: Any) -> dict[str, Any]:
        """Its public half as a JWK."""
        key = self.private if private else self.private.public_key()
        made = json.loads(get_default_algorithms()[self.algorithm].to_jwk(key))
        return {**{k: v for k, v in made.items() if k != "key_ops"}, "kid": self.kid, **changes}

    def token(self, headers: dict[str, Any] | None = None, /, **claims: Any) -> str:
        """A valid token, with `claims` replaced; a claim of None is omitted."""
        body = json.dumps(payload(**claims)).encode()  # `jwt.encode` would not make a wrong one
        return jwt.api_jws.encode(body, self.private, self.algorithm, {"kid": self.kid, **(headers or {})})


def payload(**claims: Any) -> dict[str, Any]:
    """Claims that are right but for those given."""
    right = {"iss": ISSUER, "aud": AUDIENCE, "sub": "app-1", "exp": time.time() + 600, "tenant": "acme"}
    return {name: value for name, value in {**right, **claims}.items() if value is not None}


def jwk_set(*keys: SigningKey) -> bytes:
    """The body of a JWKS document."""
    return json.dumps({"keys": [key.jwk() for key in keys]}).encode()


class JwksServer:
    """Answers with `body` and `status`, and counts how often."""

    def __init__(self, *keys: SigningKey) -> None:
        self.body = jwk_set(*keys)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.fetches = 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.fetches += 1
        return web.Response(status=self.status, body=self.body, headers=self.headers)


@asynccontextmanager
async def jwks_server(*keys: SigningKey) -> AsyncIterator[JwksServer]:
    """Serve these keys until the end."""
    server = JwksServer(*keys)
    app = web.Application()
    app.router.add_get("/{name}", server.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}/jwks.json"
    try:
        yield server
    finally:
        await runner.cleanup()


def issuer(url: str, **changes: Any) -> dict[str, Any]:
    """The entry of `auth.jwt` for tokens of this issuer, whose keys are at that address."""
    return {
        "name": "login", "issuer": ISSUER, "audience": AUDIENCE, "algorithms": ["RS256"], "jwks": url,
        "claims": {"tenant": "tenant", "roles": "roles"}, "roles": {"ops": "operator"}, **changes,
    }  # fmt: skip
