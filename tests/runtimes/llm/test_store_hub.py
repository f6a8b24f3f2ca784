"""Models from the Hugging Face Hub; a small stand-in listens on loopback."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.processes
CONTENT = b"GGUF" + bytes(range(256)) * 100


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


COMMIT = "0123456789" * 4
REPOSITORY = {
    "config.json": b"{}",
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"x",
    "pytorch_model.bin": b"a pickle",
    "m.Q4.gguf": CONTENT,
    "big/m-00001-of-00002.gguf": CONTENT,
    "big/m-00002-of-00002.gguf": CONTENT,
}
# A model from before safetensors.
OLD = {"config.json": b"{}", "pytorch_model.bin": b"a pickle", "training_args.bin": b"another"}


class Hub(http.server.BaseHTTPRequestHandler):
    """The few calls of the Hub that a download makes, for two models at revisions main and v1."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, repository = self.path.partition("?")[0], REPOSITORY
        if "/org/old" in path:
            path, repository = path.replace("/org/old", "/org/tiny"), OLD
        for revision in ("main", "v1", COMMIT):
            if path == f"/api/models/org/tiny/revision/{revision}" or path == "/api/models/org/tiny":
                files = [{"rfilename": name} for name in repository]
                body = {
                    "id": "org/tiny",
                    "sha": COMMIT,
                    "siblings": files,
                    "private": False,
                    "tags": [],
                    "downloads": 0,
                }
                return self.answer(200, json.dumps(body).encode())
            if path == f"/api/models/org/tiny/tree/{revision}":
                tree = [{"type": "file", "path": n, "size": len(d), "oid": "0"} for n, d in repository.items()]
                return self.answer(200, json.dumps(tree).encode())
            name = path.removeprefix(f"/org/tiny/resolve/{revision}/")
            if name in repository:
                return self.answer(200, repository[name])
        missing = "EntryNotFound" if path.startswith("/org/tiny/resolve/main") else "RepoNotFound"
        missing = "RevisionNotFound" if "/v9" in path else missing
        return self.answer(404, b"", {"x-error-code": missing})

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        sent = {"content-length": str(len(body)), "x-repo-commit": COMMIT, "etag": hashlib.sha1(body).hexdigest()}
        for name, value in (sent | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def hub() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def resolve_elsewhere(name: str, hub: str, home: Path) -> tuple[str, str]:
    """(path, error) of a resolution in a process of its own: the library reads its settings at import."""
    program = (
        "import sys\nfrom runtimes.llm.weights.store import resolve\nfrom runtimes.wheels import ModelUnavailable\n"
        "try:\n    print(resolve(sys.argv[1]))\nexcept ModelUnavailable as error:\n    sys.exit(str(error))"
    )
    environment = os.environ | {"HF_ENDPOINT": hub, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    ended = subprocess.run([sys.executable, "-c", program, name], env=environment, capture_output=True, text=True)
    return ended.stdout.strip(), ended.stderr.strip()


def test_a_folder_from_the_hub(hub: str, tmp_path: Path) -> None:
    path, error = resolve_elsewhere("hf:org/tiny@v1", hub, tmp_path)
    assert error == ""
    assert files(Path(path)) == {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}


def test_one_file_from_the_hub(hub: str, tmp_path: Path) -> None:
    path, error = resolve_elsewhere("hf:org/tiny/m.Q4.gguf", hub, tmp_path)
    assert error == ""
    assert Path(path).read_bytes() == CONTENT


def test_all_parts_of_a_split_file(hub: str, tmp_path: Path) -> None:
    path, error = resolve_elsewhere("hf:org/tiny/big/m-00001-of-00002.gguf", hub, tmp_path)
    assert error == ""
    assert Path(path).name == "m-00001-of-00002.gguf"
    assert files(Path(path).parent) == {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"}


def test_a_pickle_if_there_is_nothing_else(hub: str, tmp_path: Path) -> None:
    path, error = resolve_elsewhere("hf:org/old", hub, tmp_path)
    assert error == ""
    assert files(Path(path)) == {"config.json", "pytorch_model.bin"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:org/none", "no such model"),
        ("hf:org/tiny/none.gguf", "no file none.gguf"),
        ("hf:org/tiny@v9", "no revision v9"),
    ],
)
def test_models_that_the_hub_lacks_are_errors(hub: str, tmp_path: Path, name: str, message: str) -> None:
    path, error = resolve_elsewhere(name, hub, tmp_path)
    assert path == ""
    assert message in error
