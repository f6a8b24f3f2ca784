"""`headrace probe` and `headrace conformance` on the command line."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from aiohttp import web
from typer.testing import CliRunner

from gateway.process.commands import app
from tests.adapters.detection import systems
from tests.adapters.detection.paths import Paths, answering
from tests.servers.stand_ins.serving import serving
from tests.support.correct_server import Model, listening

run = CliRunner().invoke


@contextmanager
def threaded(serving: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[str]:
    """A server's URL. It runs in a thread: the commands have a loop of their own."""
    started, url = threading.Event(), [""]
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with serving() as address:
            url[0] = address
            started.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(60)
        yield url[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(60)
        loop.close()


def served(paths: Paths) -> AbstractContextManager[str]:
    return threaded(lambda: answering(paths))


def test_probe_writes_a_configuration_that_check_accepts(tmp_path: Path) -> None:
    with served(systems.SYSTEMS[0].paths) as url:
        probed = run(app, ["probe", url])
    assert probed.exit_code == 0, probed.output
    path = tmp_path / "found.yaml"
    path.write_text(probed.output)
    checked = run(app, ["check", str(path)])
    assert (checked.exit_code, checked.output) == (0, f"{path}: ok\n")


def test_probe_sends_the_key_and_does_not_print_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_UPSTREAM_KEY", "very-secret")
    with served(systems.SYSTEMS[0].paths) as url:
        probed = run(app, ["probe", url, "--key-header", "api-key"])
    assert "key: '${HEADRACE_UPSTREAM_KEY}', key_header: api-key" in probed.output
    assert "very-secret" not in probed.output


FILE = """
version: 1
pools:
  - name: clouds
    protocol: {name: bedrock, region: eu-south-2}
    credentials: {aws: {key_id: "file:id.key", secret: "file:id.key"}}
models: [{name: m, routes: [{to: clouds}]}]
tenants: [{name: acme, models: ["*"]}]
"""


def test_probe_has_the_credentials_of_a_pool(tmp_path: Path) -> None:
    path, seen = tmp_path / "headrace.yaml", list[str | None]()
    path.write_text(FILE)
    (tmp_path / "id.key").write_text("AKID-of-the-pool")

    async def models(request: web.Request) -> web.Response:
        seen.append(request.headers.get("authorization"))
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]})

    @asynccontextmanager
    async def server() -> AsyncIterator[str]:
        served_app = web.Application()
        served_app.router.add_get("/v1/models", models)
        async with serving(served_app) as url:
            yield url

    with threaded(server) as url:
        probed = run(app, ["probe", url, "--credentials", "clouds", "--config", str(path)])
        other = run(app, ["probe", url, "--credentials", "other", "--config", str(path)])
        alone = run(app, ["probe", url, "--credentials", "clouds"])
    assert probed.exit_code == 0, probed.output
    signatures = [given for given in seen if given is not None]
    assert len(signatures) == len(seen) > 0
    assert all(" Credential=AKID-of-the-pool/" in given and "/eu-south-2/" in given for given in signatures)
    assert "credentials: {aws: {key_id: 'file:id.key', secret: 'file:id.key'}}" in probed.output
    assert (other.exit_code, "has no pool other; it has clouds" in other.output) == (2, True), other.output
    assert (alone.exit_code, "goes with --config" in alone.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "status", "output"),
    [
        (["http://127.0.0.1:1"], 1, "could not be reached"),
        (["ftp://somewhere"], 2, "expected http://HOST:PORT"),
        (["https://127.0.0.1:1", "--ca", "/nowhere.pem"], 2, "tls:"),
    ],
)
def test_probe_of_an_invalid_address(arguments: list[str], status: int, output: str) -> None:
    result = run(app, ["probe", *arguments])
    assert (result.exit_code, output in result.output) == (status, True), result.output


def test_probe_of_an_unknown_server() -> None:
    with served({"/": "hello"}) as url:
        result = run(app, ["probe", url])
    assert (result.exit_code, "its protocol is not supported" in result.output) == (1, True)


def test_conformance_of_a_server_that_is_as_it_should_be_and_of_one_that_is_not() -> None:
    model = Model()
    with threaded(lambda: listening(model)) as url:
        good = run(app, ["conformance", url, "--protocol", "openai", "--model", "m"])
        model.refuses = False
        bad = run(app, ["conformance", url, "--protocol", "openai", "--model", "m"])
    assert (good.exit_code, "17 features, none failed" in good.output) == (0, True), good.output
    assert (bad.exit_code, "2 of 17 failed" in bad.output) == (1, True), bad.output


def test_conformance_requires_a_protocol_and_an_address() -> None:
    with served({"/": "hello"}) as url:
        unknown = run(app, ["conformance", url])
        nameless = run(app, ["conformance", url, "--protocol", "openai"])
        wrong = run(app, ["conformance", url, "--protocol", "opennai"])
    assert (unknown.exit_code, "--protocol" in unknown.output) == (2, True)
    assert (nameless.exit_code, "--model" in nameless.output) == (2, True)
    assert (wrong.exit_code, 'did you mean "openai"' in wrong.output) == (2, True)
