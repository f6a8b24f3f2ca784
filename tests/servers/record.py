"""What a real Triton said to every case, kept beside the tests: `python -m tests.servers.record` writes it anew."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.calls import called
from tests.servers.cases import CASES
from tests.servers.exchange import Ask, Told, asked
from tests.servers.repositories import for_triton
from tests.servers.triton import triton

RECORD = Path(__file__).parent / "triton-2.51.0.json"


def recorded() -> dict[str, list[Told]]:
    """By case, one answer for each of its requests."""
    return {name: [Told(*one) for one in told] for name, told in json.loads(RECORD.read_text()).items()}


def say(name: str, http: str, grpc: str, keys: Mapping[str, str] | None = None) -> list[Told]:
    """Put one case to a server, with API keys by protocol where it wants them."""
    fields = {kind: {"authorization": f"Bearer {key}"} for kind, key in (keys or {}).items()}
    return [
        asked(http, one, fields.get("http", {})) if isinstance(one, Ask) else called(grpc, one, fields.get("grpc", {}))
        for one in CASES[name]
    ]


def main() -> None:
    """Ask a real one everything."""
    with tempfile.TemporaryDirectory() as folder, triton(for_triton(Path(folder))) as server:
        told = {name: [_plain(one) for one in say(name, server.http, server.grpc)] for name in CASES}
    lines = (f"{json.dumps(name)}: {json.dumps(answers, sort_keys=True)}" for name, answers in told.items())
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _plain(told: Told) -> list[Any]:
    return [told.status, told.kind, told.document]


if __name__ == "__main__":
    main()
