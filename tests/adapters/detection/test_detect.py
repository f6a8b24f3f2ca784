"""Each system is recognized, and an unknown server is reported as unknown."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.conformance.subject import pool
from adapters.detection import text
from adapters.detection.detect import detect
from adapters.detection.look import MAX_BODY, MAX_LOOKS, Detection, Look
from adapters.errors import BackendError, DeadlineError, InferenceError, TransportError
from adapters.http1.client import Client
from adapters.http1.message import Response
from adapters.registry import Address
from adapters.wire.openai.providers import HOSTED
from tests.adapters.detection import systems
from tests.adapters.detection.paths import Paths, answering
from tests.adapters.detection.systems import System


async def detected(paths: Paths, *names: str, seconds: float = 300.0, path: str = "") -> Detection | None:
    async with answering(paths) as url:
        return await detect(pool("auto", url + path), Address(url + path), names=names, seconds=seconds)


@pytest.mark.parametrize("system", systems.SYSTEMS, ids=lambda system: system.name)
async def test_a_system_by_its_paths(system: System) -> None:
    detection = await detected(system.paths, *system.names)
    assert detection is not None
    assert (detection.system, detection.version) == (system.name, system.version)
    assert detection.pools[0].protocol == system.protocol
    assert [model.name for model in detection.pools[0].models] == system.models
    assert bool(system.models) or "--" in detection.notes[0]


async def test_the_inputs_of_a_model_are_described() -> None:
    triton, vllm = systems.SYSTEMS[0], next(one for one in systems.SYSTEMS if one.name == "vLLM")
    for system, description in ((triton, "x FP32[-1,4] → y FP32[-1]"), (vllm, "context 2048 tokens")):
        detection = await detected(system.paths)
        assert detection is not None
        assert detection.pools[0].models[0].description == description


async def test_models_of_text_beside_those_of_tensors_are_a_pool_of_their_own() -> None:
    kserve = next(one for one in systems.SYSTEMS if one.name == "KServe model server")
    detection = await detected({**kserve.paths, "/openai/v1/models": systems.owned("kserve", "llm")})
    assert detection is not None
    assert [(one.name, one.path, [model.name for model in one.models]) for one in detection.pools] == [
        ("kserve", "", ["m"]),
        ("kserve-text", "/openai/v1", ["llm"]),
    ]


async def test_models_of_text_among_a_triton_s_are_a_pool_of_their_own() -> None:
    triton = systems.SYSTEMS[0]
    prompt = {"name": "text_input", "datatype": "BYTES", "shape": [1]}
    llm = {**systems.META, "inputs": [prompt], "outputs": [{**prompt, "name": "text_output"}]}
    detection = await detected({**triton.paths, "/v2/models/sum": llm})
    assert detection is not None
    assert [(one.protocol["name"], [model.name for model in one.models]) for one in detection.pools] == [
        ("oip-http", ["m"]),
        ("triton-generate", ["sum"]),
    ]


async def test_each_application_of_ray_serve_is_a_pool_below_its_own_path() -> None:
    paths = {"/-/routes": {"/": "root", "/rank": "ranker"}, "/-/healthz": "success"}
    for path in ("", "/rank"):
        detection = await detected(paths, path=path)
        assert detection is not None
        assert [(one.name, one.path) for one in detection.pools] == [("root", ""), ("ranker", "/rank")]


async def test_an_address_with_a_path() -> None:
    detection = await detected({"/proxy/v1/models": systems.owned("vllm", "m")}, path="/proxy/v1")
    assert detection is not None
    assert (detection.system, [one.name for one in detection.pools[0].models]) == ("vLLM", ["m"])


async def test_an_unknown_server_is_not_detected() -> None:
    assert await detected({}) is None
    assert await detected({"/": "hello", "/ping": "pong", "/v2": "[]", "/v1/models": '{"data": {}}'}) is None


async def test_an_unreachable_server_is_an_error() -> None:
    with pytest.raises(TransportError):
        await detect(pool("auto", "http://127.0.0.1:1"), Address("http://127.0.0.1:1"))


async def test_a_redirect_leads_nowhere() -> None:
    requested: list[str] = []
    moved = Response(302, [("location", "/elsewhere")])
    async with answering({"/v2": (302, moved), "/v1/models": (302, moved)}, requested) as url:
        assert await detect(pool("auto", url), Address(url)) is None
    assert "/elsewhere" not in requested
    assert len(requested) < MAX_LOOKS


async def test_an_answer_that_is_too_large_is_an_error() -> None:
    big = {"name": "triton", "version": "x" * MAX_BODY}
    with pytest.raises(BackendError, match="too large"):
        await detected({"/v2": big})


async def test_a_server_that_answers_nothing_takes_no_longer_than_it_may() -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            writer.close()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    async with asyncio.timeout(300):
        with pytest.raises((DeadlineError, TransportError)):
            await detect(pool("auto", url), Address(url), seconds=0.5)
    server.close()
    await server.wait_closed()


async def test_control_characters_in_a_models_name_are_removed() -> None:
    detection = await detected({"/v1/models": systems.owned("vllm", "a\n\x1b[31mb", "ok")})
    assert detection is not None
    assert [one.name for one in detection.pools[0].models] == ["a[31mb", "ok"]


@pytest.mark.parametrize("path", ["/v2", "/v1/models", "/info", "/schema.json", "/-/routes", "/ping"])
@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "data", "models", "routes", "status", "error", "type", "model_id", "id"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_a_path_answers_is_read_or_left(path: str, body: object) -> None:
    async def look() -> None:
        try:
            await detected({path: body, "/-/healthz": "success"})
        except InferenceError:
            return

    asyncio.run(look())


@pytest.mark.parametrize("name", HOSTED)
async def test_a_hosted_api_is_recognised_by_its_host(name: str) -> None:
    """With a list of models as an object, as a bare list, without one, and with a refused key."""
    dialect, host = HOSTED[name], HOSTED[name].hosts[0].replace("*", "x")
    models = systems.owned("somebody", "m")
    for answer, expected in ((models, ["m"]), (models["data"], ["m"]), (None, [])):
        paths: Paths = {} if answer is None else {f"{dialect.root}/models": answer}
        for path in ("", dialect.root):
            async with answering(paths) as url:
                client = Client(url + path)
                look = Look(client, asyncio.get_running_loop().time() + 300.0, (), host)
                detection = await text.openai(look)
                await client.aclose()
            assert detection is not None
            assert (detection.system, detection.pools[0].protocol) == (
                dialect.system,
                {"name": "openai", "dialect": name},
            )
            assert [model.name for model in detection.pools[0].models] == expected
            assert bool(expected) != bool(detection.notes)
