"""The result of a detection is a configuration that the gateway loads."""

from pathlib import Path

import pytest

from adapters.conformance.subject import pool
from adapters.detection.detect import UNNAMED, detect, written
from adapters.detection.look import DetectedModel, Detection
from adapters.detection.look import pool as way
from adapters.registry import Address
from config.loader import load, read
from config.schema.protocols import BUILT_IN
from tests.adapters.detection import systems
from tests.adapters.detection.paths import answering
from tests.adapters.detection.systems import System


@pytest.mark.parametrize(
    "system", [one for one in systems.SYSTEMS if one.protocol["name"] in BUILT_IN], ids=lambda system: system.name
)
async def test_every_system_is_written_as_the_gateway_reads_it(system: System, tmp_path: Path) -> None:
    async with answering(system.paths) as url:
        detection = await detect(pool("auto", url), Address(url), names=system.names)
    assert detection is not None
    path = tmp_path / "found.yaml"
    path.write_text(written(detection, url))
    reading = read(path)
    assert not reading.problems
    assert reading.config is not None
    assert [model.name for model in reading.config.models] == (system.models or [UNNAMED])
    assert [endpoint.url for endpoint in reading.config.pools[0].endpoints] == [url + detection.pools[0].path]
    assert reading.config.pools[0].protocol.name == system.protocol["name"]


def test_two_ways_in_a_key_and_a_name_that_clients_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = way(
        "kserve", "oip-http", DetectedModel("m", "tensors", "x FP32[-1] → y FP32[-1]"), DetectedModel("a b", "text")
    )
    texts = way("kserve-text", "openai", DetectedModel("llm", "text"), path="/openai/v1")
    text = written(
        Detection("KServe", "0.21.0", (tensors, texts), ("A note.",)),
        "https://models:8080/",
        {"key": "${UPSTREAM_KEY}"},
    )
    assert text.startswith("# KServe 0.21.0\n# A note.\n# Clients cannot write the model's name 'a b'")
    monkeypatch.setenv("UPSTREAM_KEY", "k")
    path = tmp_path / "found.yaml"
    path.write_text(text)
    config = load(path)
    assert [one.endpoints[0].url for one in config.pools] == ["https://models:8080", "https://models:8080/openai/v1"]
    assert {model.name: model.routes[0].to for model in config.models} == {"m": "kserve", "llm": "kserve-text"}
