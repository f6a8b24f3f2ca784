"""A real OpenID provider of the test's own (oidc-provider-mock), with people that sign in by their name."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loadtests.servers import Launch
from loadtests.venvs import ensure
from tests.servers.started import started

REQUIREMENT = "oidc-provider-mock==0.3.4"


@contextmanager
def oidc_provider(people: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Start one. Yields its issuer. `people` are claims by subject."""

    def launch(_: Path, ports: tuple[int, ...], venv: Path) -> Launch:
        users = [json.dumps({"sub": sub, **claims}) for sub, claims in people.items()]
        options = [part for user in users for part in ("--user-claims", user)]
        command = [str(venv / "bin/oidc-provider-mock"), "--port", str(ports[0]), "--require-nonce", "true", *options]
        return Launch(command)

    path = "/.well-known/openid-configuration"
    with started("oidc-provider", lambda: ensure("oidc-provider-mock", (REQUIREMENT,)), launch, ready=path) as server:
        yield server.url()
