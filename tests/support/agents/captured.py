"""Writes the requests of an agent's session to files, shortened and without secrets.

    python -m tests.support.agents.captured [--newest] [AGENT ...]

Each agent plays its sessions through a gateway of this checkout, behind a recorder. A file holds the last request of
each session, with its history. `tests/gateway/fronts/test_captured_requests.py` sends all of them, so a new release is
one more file. Without names, all agents are captured.
"""

import argparse
import asyncio
import datetime
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.servers.stand_ins.serving import serving
from tests.support.agents.agents import AGENTS
from tests.support.agents.installed import Installed, installed
from tests.support.agents.model import agent_model, task
from tests.support.agents.sessions import MODELS, Work, configuration
from tests.support.processes import gateway

FOLDER = Path(__file__).parents[2] / "gateway/fronts/captured"
LONG, SHORT = 100, 40
"""Texts longer than the first are cut to the second."""
WHOLE = frozenset({"anthropic-beta", "arguments", "data", "encrypted_content", "signature", "url", "image_url"})
"""Fields whose texts have a form, which a cut would break."""
HEADERS = ("anthropic-beta", "anthropic-version", "content-type", "openai-beta", "user-agent")
"""Headers that a file keeps: they matter, and are no secrets."""
Object = dict[str, Any]


class Recorder:
    """A proxy that keeps the requests with a JSON body."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.requests: list[Object] = []

    async def __call__(self, http: web.Request) -> web.StreamResponse:
        """Forward one request."""
        body = await http.read()
        if http.method == "POST" and http.content_type == "application/json":
            headers = {name: http.headers[name] for name in HEADERS if name in http.headers}
            self.requests.append({"path": http.path_qs, "headers": headers, "body": json.loads(body)})
        headers = {name: value for name, value in http.headers.items() if name.lower() not in _HOP}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as client,
            client.request(http.method, self._target + http.path_qs, data=body, headers=headers) as answer,
        ):
            response = web.StreamResponse(status=answer.status)
            response.headers["content-type"] = answer.headers.get("content-type", "text/plain")
            await response.prepare(http)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            return response


_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding", "upgrade"})


class Shortener:
    """Cuts long texts, replaces the names of this machine's folders, and leaves out tools that an earlier body had."""

    def __init__(self) -> None:
        self._tools: set[str] = set()

    def shortened(self, value: Any, places: Mapping[str, str], name: str = "") -> Any:
        """The value, whole in structure."""
        if isinstance(value, dict):
            return {key: self.shortened(each, places, key) for key, each in value.items()}
        if isinstance(value, list):
            items = [self.shortened(each, places, name) for each in value]
            return self._new(items) if name == "tools" else items
        if not isinstance(value, str):
            return value
        for place, stands in places.items():
            value = value.replace(place, stands)
        return value if len(value) <= LONG or name in WHOLE else value[:SHORT] + " …"

    def _new(self, tools: list[Object]) -> list[Object]:
        """The tools that no earlier body had; the first one if there are none."""
        new = [tool for tool in tools if json.dumps(tool) not in self._tools]
        self._tools |= {json.dumps(tool) for tool in new}
        return new or tools[:1]


async def capture(agent: str, *, newest: bool) -> Path:
    """Run an agent's sessions and write their file, whether the gateway answered or refused them."""
    programs = installed(AGENTS[agent].package, newest=newest)
    shortener = Shortener()
    requests = [each for model in MODELS[agent] for each in await _requests(agent, model, programs, shortener)]
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    file = FOLDER / f"{agent}-{programs.version}.json"
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in requests)
    head = {"client": agent, "version": programs.version, "date": today}
    file.write_text(f'{json.dumps(head)[:-1]}, "requests": [\n{lines}\n]}}\n')
    return file


async def _requests(agent: str, model: str, programs: Installed, shortener: Shortener) -> list[Object]:
    """The last request of a session, which holds its history, and the first without tools, such as that for a title."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = Work(folder)
        async with (
            agent_model() as server,
            gateway(folder, configuration(server.url)) as g,
            serving_recorder(g.url) as (url, recorder),
        ):
            await work.run(AGENTS[agent].start(url, await g.demo_key(), model, task(work.folder)), programs)
    requests = [
        each for each in recorder.requests if "item_reference" not in json.dumps(each)
    ]  # of this gateway's store
    turns = [each for each in requests if "tools" in json.dumps(each["body"])]
    others = [each for each in requests if each not in turns]
    places = {str(folder): "/home/user", folder.name: "user", work.word: "otter"}
    return [shortener.shortened(each, places) for each in (*others[:1], *turns[-1:])]


@asynccontextmanager
async def serving_recorder(target: str) -> AsyncIterator[tuple[str, Recorder]]:
    """Its URL, and itself."""
    made = Recorder(target)
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", made)
    async with serving(app) as url:
        yield url, made


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="*", metavar="AGENT", default=list(MODELS))
    parser.add_argument("--newest", action="store_true", help="install the newest release")
    arguments = parser.parse_args()
    for agent in arguments.agents:
        print(asyncio.run(capture(agent, newest=arguments.newest)).name)


if __name__ == "__main__":
    main()
