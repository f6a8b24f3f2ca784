"""Loading, unloading, statistics and settings. Each case leaves the server as it found it."""

import json

from tests.servers.exchange import HttpRequest, get, infer, post, tensor

INDEX = "/v2/repository/index"
MODEL = "/v2/repository/models/slow"
SLOW = infer("slow", tensor("MILLISECONDS", "INT32", [2, 1], [0, 0]))
STATISTICS = HttpRequest("GET", "/v2/models/slow/versions/1/stats", until=b'"batch_size":2,')
LARGER = {
    "backend": "python",
    "max_batch_size": 16,
    "input": [{"name": "MILLISECONDS", "data_type": "TYPE_INT32", "dims": [1]}],
    "output": [{"name": "SLEPT", "data_type": "TYPE_INT32", "dims": [1]}],
    "instance_group": [{"kind": "KIND_CPU"}],
}


def _load(**parameters: object) -> dict[str, object]:
    return {"parameters": parameters}


CONTROL = {
    "index": [post(INDEX)],
    "index of what is ready": [post(INDEX, {"ready": True})],
    "index by GET": [get(INDEX)],
    "unload and load": [
        post(f"{MODEL}/unload"),
        get("/v2/models/slow/ready"),
        SLOW,
        post(INDEX, {"ready": True}),
        post(f"{MODEL}/load"),
        get("/v2/models/slow/ready"),
        SLOW,
    ],
    "load with another config": [
        post(f"{MODEL}/load", _load(config=json.dumps(LARGER))),
        get("/v2/models/slow/config"),
        post(f"{MODEL}/load"),
        SLOW,
    ],
    "load with a config that is none": [post(f"{MODEL}/load", _load(config="{")), SLOW, post(f"{MODEL}/load")],
    "load with a config that is no text": [post(f"{MODEL}/load", _load(config=3)), SLOW, post(f"{MODEL}/load")],
    "load of an unknown model": [post("/v2/repository/models/nobody/load")],
    "unload of an unknown model": [post("/v2/repository/models/nobody/unload")],
    "load without JSON": [post(f"{MODEL}/load", b"{"), SLOW, post(f"{MODEL}/load")],
    "statistics": [SLOW, STATISTICS],
    "regions of shared memory": [get("/v2/systemsharedmemory/status"), get("/v2/cudasharedmemory/status")],
    "a region that cannot be": [
        post("/v2/systemsharedmemory/region/r/register", {"key": "/nowhere", "offset": 0, "byte_size": 64}),
        post("/v2/systemsharedmemory/region/r/register", {"key": "/nowhere"}),
        post("/v2/systemsharedmemory/region/nobody/unregister"),
    ],
    "trace settings": [get("/v2/trace/setting"), get("/v2/models/add_sub/trace/setting")],
    "log settings": [get("/v2/logging"), post("/v2/logging", {"log_verbose_level": 0})],
    "log settings that are none": [post("/v2/logging", {"colour": "blue"})],
}
