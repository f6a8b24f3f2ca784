"""How long small requests wait at a server while it has a large one: a program, with a thread for each of the two."""

import argparse
import contextlib
import http.client
import json
import statistics
import threading
import time

LARGE = 1_000_000
"""Elements."""
PAUSE_S = 0.002
TIMEOUT_S = 120


def large_request(kind: str, count: int) -> tuple[bytes, dict[str, str]]:
    """Body and header fields: texts in binary form, or floats in JSON."""
    if kind == "floats":
        data = ",".join(["0.25"] * count)
        tensor = f'{{"name":"IN","datatype":"FP32","shape":[{count}],"data":[{data}]}}'
        return f'{{"inputs":[{tensor}]}}'.encode(), {"Content-Type": "application/json"}
    data_size = 5 * count
    tensor_ = {"name": "IN", "datatype": "BYTES", "shape": [count], "parameters": {"binary_data_size": data_size}}
    output = {"name": "OUT", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor_], "outputs": [output]}).encode()
    fields = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return head + b"\1\0\0\0a" * count, fields


class Client:
    """One connection. Raises `RuntimeError` for an answer that is not good."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def close(self) -> None:
        self._connection.close()

    def request(self, method: str, path: str, body: bytes = b"", fields: dict[str, str] | None = None) -> float:
        """Seconds until the whole answer is there."""
        began = time.perf_counter()
        self._connection.request(method, path, body, fields or {})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {answer[:300]!r}")
        return time.perf_counter() - began


def measure(port: int, kind: str, seconds: float, key: str, count: int = LARGE) -> dict[str, float]:
    """One large request after another, and small ones on another connection meanwhile."""
    body, fields = large_request(kind, count)
    if key:
        fields["Authorization"] = f"Bearer {key}"
    path = f"/v2/models/echo_{kind}/infer"
    with contextlib.closing(Client(port)) as large, contextlib.closing(Client(port)) as small:
        large.request("POST", path, body, fields)  # the first one may start what decodes it
        took: list[float] = []
        failed: list[Exception] = []
        over = threading.Event()

        def load() -> None:
            end = time.perf_counter() + seconds
            try:
                while time.perf_counter() < end or not took:
                    took.append(large.request("POST", path, body, fields))
            except Exception as error:
                failed.append(error)
            finally:
                over.set()

        thread = threading.Thread(target=load)
        thread.start()
        waited = []
        while not over.wait(PAUSE_S):
            waited.append(small.request("GET", "/v2/health/live"))
        thread.join()
        if failed:
            raise failed[0]
        percentiles = statistics.quantiles(waited, n=100)
        return {
            "wait_p50_ms": 1e3 * percentiles[49],
            "wait_p99_ms": 1e3 * percentiles[98],
            "wait_max_ms": 1e3 * max(waited),
            "p50_ms": 1e3 * statistics.median(took),
        }


def main() -> None:
    """Prints one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.tensors.waits", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--kind", choices=["texts", "floats"], required=True)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    print(json.dumps(measure(options.port, options.kind, options.seconds, options.key)))


if __name__ == "__main__":
    main()
