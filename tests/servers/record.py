"""The stored responses of a real Triton to every case: `python -m tests.servers.record` writes them anew."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.calls import called
from tests.servers.cases import CASES
from tests.servers.exchange import HttpRequest, Reply, reply_to
from tests.servers.repositories import for_triton
from tests.servers.triton import triton

RECORD = Path(__file__).parent / "triton-2.51.0.json"


def recorded() -> dict[str, list[Reply]]:
    """The recorded answers by case, one for each of its requests."""
    return {name: [Reply(*one) for one in responses] for name, responses in json.loads(RECORD.read_text()).items()}


def replies_to(name: str, http: str, grpc: str, keys: Mapping[str, str] | None = None) -> list[Reply]:
    """Send one case to a server, with API keys by protocol if it requires them."""
    fields = {kind: {"authorization": f"Bearer {key}"} for kind, key in (keys or {}).items()}
    return [
        reply_to(http, one, fields.get("http", {}))
        if isinstance(one, HttpRequest)
        else called(grpc, one, fields.get("grpc", {}))
        for one in CASES[name]
    ]


def main() -> None:
    """Send every case to a real Triton."""
    with tempfile.TemporaryDirectory() as folder, triton(for_triton(Path(folder))) as server:
        responses = {name: [_plain(one) for one in replies_to(name, server.http, server.grpc)] for name in CASES}
    lines = (f"{json.dumps(name)}: {json.dumps(answers, sort_keys=True)}" for name, answers in responses.items())
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _plain(responses: Reply) -> list[Any]:
    return [responses.status, responses.kind, responses.document]


if __name__ == "__main__":
    main()
