"""Metadata, index, load and unload."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import IndexEntry, Load, ModelMetadata, ServerMetadata, TensorMetadata
from tests.adapters.wire.tensors import load_body


def test_metadata_has_the_protocols_form() -> None:
    metadata = ModelMetadata("m", ["1"], "onnx", [TensorMetadata("x", "FP32", (-1, 3))], [])
    body = oip_bodies.encode(metadata)
    assert json.loads(body) == {
        "name": "m", "versions": ["1"], "platform": "onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}], "outputs": [],
    }  # fmt: skip
    assert oip_bodies.decode_metadata(body) == metadata
    assert oip_bodies.decode_metadata(b'{"name":"m","versions":null}') == ModelMetadata("m", [], "", [], [])
    server = oip_bodies.encode(ServerMetadata("headrace", "1", ["statistics"]))
    assert json.loads(server) == {"name": "headrace", "version": "1", "extensions": ["statistics"]}


def test_the_index_omits_absent_fields() -> None:
    entries = [IndexEntry("m", "1", "READY"), IndexEntry("n")]
    body = oip_bodies.encode(entries)
    assert json.loads(body) == [{"name": "m", "version": "1", "state": "READY"}, {"name": "n"}]
    assert oip_bodies.decode_index(body) == entries


@pytest.mark.parametrize(
    ("body", "ready"),
    [(b"", False), (b" ", False), (b"{}", False), (b'{"ready":true}', True), (b'{"ready":false}', False)],
)
def test_index_requests(body: bytes, ready: bool) -> None:
    assert oip_bodies.decode_index_request(body) is ready


@given(
    st.none() | st.text(max_size=5), st.dictionaries(st.text("ab/.1", min_size=1, max_size=5), st.binary(max_size=9))
)
def test_loads_are_decoded_as_clients_encode_them(config: str | None, files: dict[str, bytes]) -> None:
    load = Load(config if config is not None or not files else "{}", files)
    assert oip_bodies.decode_load(load_body(load.config, load.files)) == load


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"config": 3}, "`config` must be a string"),
        ({"file:1/model": "*", "config": "{}"}, "`file:1/model` is not base64"),
        ({"file:1/model": "YQ=="}, "need a `config`"),
        ({"colour": "red"}, "Unknown load parameter `colour`"),
        ({"config": {}}, "not valid"),
        (3, "not valid"),
    ],
)
def test_loads_that_are_wrong(parameters: Any, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        oip_bodies.decode_load(json.dumps({"parameters": parameters}).encode())


def test_unloading() -> None:
    assert oip_bodies.decode_unload(b"") is False
    assert oip_bodies.decode_unload(b'{"parameters":{"unload_dependents":true}}') is True
    with pytest.raises(CallerError, match="unload_dependents"):
        oip_bodies.decode_unload(b'{"parameters":{"unload_dependents":"yes"}}')


@given(st.binary(max_size=40))
def test_noise_is_the_callers_fault_or_the_upstreams(noise: bytes) -> None:
    for decode in (
        oip_bodies.decode_index_request,
        oip_bodies.decode_load,
        oip_bodies.decode_unload,
        oip_bodies.decode_object,
    ):
        try:
            decode(noise)
        except CallerError:
            continue
        assert isinstance(json.loads(noise.strip() or b"{}"), dict)
    for answered in (oip_bodies.decode_metadata, oip_bodies.decode_index, oip_bodies.decode_response_object):
        try:
            answered(noise)
        except BackendError:
            continue
        assert isinstance(json.loads(noise), dict | list)
