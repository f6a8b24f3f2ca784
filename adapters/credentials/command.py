"""Tokens that a program prints."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from adapters.credentials.renewed import Issued, RenewalError
from adapters.credentials.token_endpoint import lifetime, object_of, seconds_until, token_text
from config.schema.protocols.credentials import CommandCredentials

MAX_OUTPUT = 256 * 1024
_TOKENS = ("token", "access_token", "accessToken", "id_token")
_EXPIRIES = ("expirationTimestamp", "expires_on", "expires_at", "expiry", "expiration", "token_expiry")
"""Names of the time of the expiry. The `expiresOn` of az is a local time, and `expires_on` Unix seconds."""


async def printed_token(config: CommandCredentials) -> Issued[str]:
    """Run the program and read its token. Raises `RenewalError`."""
    output = await run(config.run, config.timeout)
    return token_of(output, os.path.basename(config.run[0]), config.lifetime)


def token_of(output: bytes, name: str, lasts: float) -> Issued[str]:
    """The token in a program's output: bare, or in JSON. `lasts` are the seconds of one without an expiry."""
    text = output.decode("utf-8", "replace").strip()
    if not text.startswith("{"):
        return Issued(token_text(text, name), lasts)
    answer = object_of(text, name)
    for inner in ("status", "credential"):  # of Kubernetes' exec plugins, and of gcloud's configuration helper
        if isinstance(answer.get(inner), dict):
            answer = answer[inner]
    token = next((answer[key] for key in _TOKENS if key in answer), None)
    return Issued(token_text(token, name), _lifetime(answer, name, lasts))


def _lifetime(answer: Mapping[str, Any], name: str, lasts: float) -> float:
    if answer.get("expires_in") is not None:
        return lifetime(answer["expires_in"], name)
    expiry = next((answer[key] for key in _EXPIRIES if answer.get(key) is not None), None)
    return lasts if expiry is None else seconds_until(expiry, name)


async def run(arguments: tuple[str, ...], timeout: float, variables: Mapping[str, str] | None = None) -> bytes:
    """Return what a program prints. It has no shell, no input, and a process group of its own, which ends with it.

    `variables` are added to the environment. What it prints to its standard error is dropped, as it may be a secret.
    Raises `RenewalError`.
    """
    name = os.path.basename(arguments[0])
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True, env={**os.environ, **(variables or {})},
        )  # fmt: skip
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise RenewalError(f"{name} cannot be started: {reason}") from None
    try:
        async with asyncio.timeout(timeout):
            output = await _output(process, name)
            status = await process.wait()
    except TimeoutError:
        _kill(process)
        raise RenewalError(f"{name} has not ended within {timeout:g} seconds") from None
    except BaseException:
        _kill(process)
        raise
    if status != 0:
        raise RenewalError(f"{name} ended with status {status}")
    return output


async def _output(process: asyncio.subprocess.Process, name: str) -> bytes:
    assert process.stdout is not None
    output = b""
    while piece := await process.stdout.read(MAX_OUTPUT):
        output += piece
        if len(output) > MAX_OUTPUT:
            raise RenewalError(f"{name} prints more than {MAX_OUTPUT} bytes")
    return output


def _kill(process: asyncio.subprocess.Process) -> None:
    """End the program and what it has started. The event loop reaps it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
