"""A server of KServe's v1 whose models are functions of rows."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

PATH: Final = "/v1/models/"


def _each(value: Any, function: Callable[[float], float]) -> Any:
    return [_each(item, function) for item in value] if isinstance(value, list) else function(value)


def _total(row: Any) -> float:
    return sum(map(_total, row)) if isinstance(row, list) else row


MODELS: Final[Mapping[str, Callable[[list[Any]], dict[str, Any]]]] = {
    "double": lambda rows: {"predictions": _each(rows, lambda x: 2 * x)},
    "negate": lambda rows: {"predictions": _each(rows, lambda x: -x)},
    "total": lambda rows: {"predictions": [_total(row) for row in rows]},
    "labelled": lambda rows: {"predictions": _each(rows, lambda x: x + 0.5), "label": "half"},
    "named": lambda rows: {"predictions": [{"sum": _total(row), "name": "añb"} for row in rows]},
    "texts": lambda rows: {"predictions": [f"row {_total(row)}" for row in rows]},
}
FAILING: Final = {"failing": (500, "the model is out of order"), "refusing": (400, "the rows are wrong")}
calls: Counter[str] = Counter()


class Handler(BaseHTTPRequestHandler):
    """Answers predictions, and `GET /calls` with the calls since the last one."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """The calls, or the readiness of a model."""
        if self.path == "/calls":
            made = dict(calls)
            calls.clear()
            return self._answer(200, made)
        return self._answer(200, {"name": self.path.rpartition("/")[2], "ready": True})

    def do_POST(self) -> None:
        """A prediction."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.removeprefix(PATH).removesuffix(":predict")
        calls[name] += 1
        if name in FAILING:
            status, message = FAILING[name]
            return self._answer(status, {"error": message})
        rows = body.get("instances", body.get("predictions"))
        if not isinstance(rows, list):
            return self._answer(400, {"error": 'Expected "instances" to be a list'})
        return self._answer(200, MODELS[name](rows))

    def _answer(self, status: int, document: Any) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def server() -> ThreadingHTTPServer:
    """The server on a free port of loopback; its users run it."""
    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
