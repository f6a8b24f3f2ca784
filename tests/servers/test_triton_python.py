"""Triton's own Python models, unchanged, in our runtime and beside a real Triton: the same outputs, bit for bit, and
the same errors."""

import json
import os
import shutil
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc

from loadtests.tensors.targets import Target
from tests.servers import repositories
from tests.servers.gateways import address, credential, in_front
from tests.servers.headrace import Headrace, headrace
from tests.servers.triton import Triton, triton
from tests.servers.triton_python import (
    FAILING,
    NAMES,
    NEWER,
    TORCH,
    Array,
    Outcome,
    floats,
    repository,
    stream,
    text,
    unary_grpc,
    unary_http,
)

OPTIONS = ("--mode", "explicit", "--load", "*", "--pass-env", "BLS_KIND", "--pass-env", "TRITON_DIR")
INTS = np.array([3], np.int32)
TWO = {"INPUT0": floats(16), "INPUT1": floats(16)[::-1].copy()}
FOUR = {"INPUT0": floats(4), "INPUT1": floats(4)[::-1].copy()}
ROW = {"INPUT0": np.array([[1]], np.int32)}
FOUR_OF_ONE = {"INPUT0": floats(4)}
CODES = ("UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED")

UNARY: dict[str, tuple[str, Mapping[str, Array]]] = {
    "add_sub": ("example_add_sub", FOUR),
    "add_sub of 16": ("add_sub_16", TWO),
    "an auto-completed model": ("auto_complete", FOUR),
    "an auto-completed model with batches": ("batch_auto_complete", {k: v.reshape(1, 4) for k, v in FOUR.items()}),
    "an auto-completed model without batches": ("nobatch_auto_complete", FOUR),
    "identity": ("identity_fp32", {"INPUT0": floats(2, 3)}),
    "identity of nothing": ("identity_fp32", {"INPUT0": floats(1, 0)}),
    "identity of 8 MB": ("identity_fp32", {"INPUT0": floats(1, 2_000_000)}),
    "too many rows": ("identity_fp32", {"INPUT0": floats(65, 3)}),
    "a missing input": ("example_add_sub", {"INPUT0": floats(4)}),
    **{f"the error code {code}": ("error_code", {"ERROR_CODE": text(code, 1, 1)}) for code in CODES},
    "an unknown error code": ("error_code", {"ERROR_CODE": text("other", 1, 1)}),
    "an error beside outputs": ("execute_error", {"IN": floats(1, 4)}),
    "an exception": ("wrong_model", {"IN": floats(1, 4)}),
    "an exception without inputs' use": ("bls_undefined", {"INPUT0": np.array([1], np.int32)}),
    "optional: the first": ("optional", {"INPUT0": INTS}),
    "optional: the second": ("optional", {"INPUT1": INTS}),
    "optional: both": ("optional", {"INPUT0": INTS, "INPUT1": INTS}),
    "text with zeros": ("string_identity", {"INPUT0": np.array([b"a\0\0\xff"], object)}),
    "transposed outputs": ("non_contiguous", {"INPUT0": floats(2, 10, 11, 6, 5)}),
    "logging": ("identity_fp32_logging", {"INPUT0": floats(1, 4)}),
    "DLPack": ("dlpack_identity", {"INPUT0": floats(2, 3)}),
    "a call": ("bls_sync", {**FOUR, "MODEL_NAME": text("example_add_sub", 1)}),
    "a call to a model that is missing": ("bls_sync", {**FOUR, "MODEL_NAME": text("nobody", 1)}),
    "a call with a wrong input": ("bls_sync", {**FOUR, "MODEL_NAME": text("optional", 1)}),
    "a call to a decoupled model": ("bls_decoupled_sync", {"IN": INTS}),
    "asynchronous calls to a decoupled model": ("bls_decoupled_async", {"IN": INTS}),
}
ONCE: dict[str, tuple[str, Mapping[str, Array]]] = {
    "bytes": ("string", {"INPUT0": text("abé", 1)}),
    "a constant": ("string_fixed", {"INPUT0": text("x", 1)}),
    "an error for each second request": ("execute_grpc_error", {"IN": floats(1, 4)}),
}
"""Models that answer each request in another way: both wires count as one sequence of requests."""
STREAMS: dict[str, tuple[str, Mapping[str, Array]]] = {
    "square": ("square_int32", {"IN": np.array([4], np.int32)}),
    "no response": ("square_int32", {"IN": np.array([0], np.int32)}),
    "repeat": (
        "repeat_int32",
        {"IN": np.array([4, 2, 0, 1], np.int32), "DELAY": np.array([1, 2, 3, 4], np.uint32),
         "WAIT": np.array([5], np.uint32)},
    ),
    "a final response with outputs": ("response_sender_complete_final", {"INPUT0": floats(1, 4)}),
    "calls from a thread": ("decoupled_bls_stream", {"IN": np.array([4], np.int32)}),
    "a coroutine": ("async_execute_decouple", {"WAIT_SECONDS": np.array([[0.01]], np.float32)}),
    "a call of a coroutine": ("async_execute_decouple_bls", {"WAIT_SECONDS": np.array([[0.01]], np.float32)}),
    "an exception": ("decoupled_raise_exception", {"IN": floats(1, 4)}),
    "an error response": ("decoupled_execute_error", {"IN": floats(1, 4)}),
    "a returned response": ("decoupled_return_response_error", TWO),
    "a language model": (
        "mock_llm", {"PROMPT": text("hello", 1, 1), "STREAM": np.array([[True]])},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    names = [name for name in NAMES if name not in TORCH | NEWER | FAILING]
    folder = repository(tmp_path_factory.mktemp("triton"), names)
    with triton(folder, ("--exit-on-error=false", "--strict-readiness=false")) as server:
        yield server


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    base = tmp_path_factory.mktemp("headrace") / "qa/L0_backend_python/models"
    base.mkdir(parents=True)
    os.environ["TRITON_DIR"] = str(base.parents[2])
    try:
        repository(base, NAMES)
        (base / "controller/1").mkdir(parents=True)
        shutil.copy(Path(__file__).parent / "python_models/controller.py", base / "controller/1/model.py")
        (base / "example_add_sub").rename(base / "add_sub")  # other examples call it so
        with headrace(repository(base, ["example_add_sub"]), OPTIONS) as server:
            yield server
    finally:
        del os.environ["TRITON_DIR"]


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    """A runtime with the model that the start of the gateway probes."""
    folder = tmp_path_factory.mktemp("behind")
    names = {model for model, _ in UNARY.values()} | {"square_int32"}
    with headrace(repository(repositories.for_headrace(folder, ["add_sub"]), names), OPTIONS) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(behind: Headrace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with in_front(behind, tmp_path_factory.mktemp("gateway"), ["add_sub", *NAMES]) as target:
        yield target


@pytest.mark.parametrize("name", UNARY)
def test_one_response_is_the_same(real: Triton, ours: Headrace, name: str) -> None:
    model, arrays = UNARY[name]
    assert alike(unary_http(ours.http, model, arrays), unary_http(real.http, model, arrays))
    assert alike(unary_grpc(ours.grpc, model, arrays), unary_grpc(real.grpc, model, arrays))


@pytest.mark.parametrize("name", ONCE)
def test_a_model_with_state_gives_the_same_responses(real: Triton, ours: Headrace, name: str) -> None:
    model, arrays = ONCE[name]
    for call, our, their in ((unary_http, ours.http, real.http), (unary_grpc, ours.grpc, real.grpc)):
        assert alike(call(our, model, arrays), call(their, model, arrays))


def test_a_sequence_is_the_same(real: Triton, ours: Headrace) -> None:
    flags = [(True, False), (False, False), (False, True)]
    for wire, call in (("http", unary_http), ("grpc", unary_grpc)):
        for start, end in flags:
            more = {"sequence_id": 7 + (wire == "grpc"), "sequence_start": start, "sequence_end": end}
            our, their = (call(getattr(server, wire), "sequence_py", ROW, **more) for server in (ours, real))
            assert alike(our, their)


def test_an_iterative_sequence_is_the_same(real: Triton, ours: Headrace) -> None:
    for _ in range(2):
        our, their = (unary_grpc(server.grpc, "request_rescheduling_addsub", TWO) for server in (ours, real))
        assert alike(our, their)
    our, their = (unary_grpc(server.grpc, "wrong_return_type", FOUR_OF_ONE) for server in (ours, real))
    assert alike(our, their)
    our_stream, their_stream = (stream(server.grpc, [("iterative_sequence", {"IN": INTS})]) for server in (ours, real))
    assert our_stream == their_stream


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_is_the_same(real: Triton, ours: Headrace, name: str) -> None:
    model, arrays = STREAMS[name]
    [[*our]], [[*their]] = (stream(server.grpc, [(model, arrays)]) for server in (ours, real))
    assert len(our) == len(their), (our, their)
    assert all(alike(one, other) for one, other in zip(our, their, strict=True)), (our, their)


@pytest.mark.parametrize("name", UNARY)
def test_the_gateway_passes_it_on(behind: Headrace, gateway: Target, name: str) -> None:
    model, arrays = UNARY[name]
    direct = unary_http(behind.http, model, arrays), unary_grpc(behind.grpc, model, arrays)
    through = [
        send(address(gateway, wire), model, arrays, headers=credential(gateway, wire))
        for wire, send in (("http", unary_http), ("grpc", unary_grpc))
    ]
    for one, other in zip(through, direct, strict=True):
        assert one.outputs == other.outputs
        assert one.parameters == other.parameters
        assert (one.error is None) == (other.error is None)


def test_a_stream_through_the_gateway(behind: Headrace, gateway: Target) -> None:
    requests = [("square_int32", {"IN": np.array([count], np.int32)}) for count in (4, 2, 0, 1)]
    direct = stream(behind.grpc, requests)
    through = stream(address(gateway, "grpc"), requests, credential(gateway, "grpc"))
    assert [[one.outputs for one in each] for each in through] == [[one.outputs for one in each] for each in direct]


# ── models that the real Triton of the tests cannot run ───────────────────────────────────────────────────


def test_dlpack_with_pytorch(ours: Headrace) -> None:
    added = unary_grpc(ours.grpc, "dlpack_add_sub", TWO)
    assert added == unary_grpc(ours.grpc, "add_sub_16", TWO)
    assert unary_grpc(ours.grpc, "bls_sync", {**FOUR, "MODEL_NAME": text("pytorch", 1)}) == unary_grpc(
        ours.grpc, "example_add_sub", FOUR
    )
    assert unary_grpc(ours.grpc, "bls_async", FOUR) == unary_grpc(ours.grpc, "add_sub", FOUR)
    [[*squares]] = stream(ours.grpc, [("dlpack_square", {"IN": INTS})])
    assert [one.outputs.get("OUT") for one in squares] == [("int32", (1,), INTS.tobytes())] * 3 + [None]


def test_bf16_by_dlpack(ours: Headrace) -> None:
    with tritonclient.grpc.InferenceServerClient(ours.grpc) as client:
        tensor = tritonclient.grpc.InferInput("INPUT0", [1, 3], "BF16")
        tensor._raw_content = np.array([[1.0, -2.5, 0.0]], np.float32).view(np.uint16)[:, 1::2].tobytes()
        result = client.infer("identity_bf16", [tensor])
    assert result.get_response().raw_output_contents[0] == tensor._raw_content
    assert result.get_response().outputs[0].datatype == "BF16"


def test_parameters_of_requests_and_responses(ours: Headrace) -> None:
    given = {"a": "b", "c": 3, "d": True}
    answer = unary_grpc(ours.grpc, "response_parameters", {"RESPONSE_PARAMETERS": text(json.dumps(given), 1, 1)})
    assert answer.parameters == given
    wrong = unary_grpc(ours.grpc, "response_parameters", {"RESPONSE_PARAMETERS": text('{"1": 2}', 1, 1)})
    assert wrong.error is not None
    assert wrong.error[0] == "StatusCode.INVALID_ARGUMENT"
    [[first, second, last]] = stream(
        ours.grpc,
        [("response_parameters_decoupled", {"RESPONSE_PARAMETERS": text('[{"a": 1}, {"b": "x"}]', 1, 1)})],
    )
    assert (first.parameters["a"], second.parameters["b"], last.outputs) == (1, "x", {})
    both = {"RESPONSE_PARAMETERS": text('{"a": 1}', 1, 1), "RESPONSE_PARAMETERS_DECOUPLED": text('[{"b": 2}]', 1, 1)}
    assert unary_grpc(ours.grpc, "response_parameters_bls", both).outputs["OUTPUT"][2] == b"True"


def test_a_model_that_calls_itself_on_other_copies(ours: Headrace) -> None:
    answer = unary_grpc(ours.grpc, "bls_parameters", {"NUMBER_PARAMETERS": np.array([3], np.uint8)})
    assert json.loads(answer.outputs["PARAMETERS_AGGREGATED"][2]) == {
        name: value for i in (1, 2, 3) for name, value in ((f"bool_{i}", True), (f"int_{i}", i), (f"str_{i}", str(i)))
    }


def test_the_arguments_of_initialize(ours: Headrace) -> None:
    answer = unary_grpc(ours.grpc, "init_args", {"IN": floats(1, 1)})
    assert np.frombuffer(answer.outputs["OUT"][2], np.float32).tolist() == [7.0]


def test_the_arguments_of_the_api_are_checked(ours: Headrace) -> None:
    with tritonclient.grpc.InferenceServerClient(ours.grpc) as client:
        assert client.infer("argument_validation", []).as_numpy("OUTPUT0").tolist() == [1.0]


def test_a_model_loads_and_unloads_others(ours: Headrace) -> None:
    answer = unary_grpc(ours.grpc, "controller", {"MODEL": text("ground_truth", 1)})
    first, unloaded, gone, loaded, again, wrong = answer.outputs["STEPS"][2].decode().split("\0")
    assert (first, unloaded, gone, loaded, again) == ("True", "None", "False", "None", "True")
    assert wrong.startswith("error: ")
    assert "is not Triton's JSON" in wrong
    missing = unary_grpc(ours.grpc, "controller", {"MODEL": text("nobody", 1)})
    steps = missing.outputs["STEPS"][2].decode().split("\0")
    assert steps[0].startswith("error: Request for unknown model: 'nobody'")
    assert steps[3].startswith("error: ")


def test_log_lines_have_the_level_of_the_model(ours: Headrace) -> None:
    assert unary_grpc(ours.grpc, "identity_fp32_logging", {"INPUT0": floats(1, 4)}).error is None
    lines = [line for line in ours.tail(400).splitlines() if "identity_fp32_logging_0_0: " in line]
    levels = {line.split()[1] for line in lines}
    assert {"INFO", "WARNING", "ERROR"} <= levels
    assert "DEBUG" not in levels, "verbose lines need a setting"


@pytest.mark.parametrize("name", ["auto_complete_error", "init_error"])
def test_a_model_that_fails_to_load_has_the_reason(ours: Headrace, name: str) -> None:
    with tritonclient.grpc.InferenceServerClient(ours.grpc) as client:
        states = {model.name: model for model in client.get_model_repository_index().models}
    assert states[name].state == "UNAVAILABLE"
    assert "is not defined" in states[name].reason


def test_custom_metrics_are_on_the_page(ours: Headrace) -> None:
    assert unary_grpc(ours.grpc, "custom_metrics", FOUR).error is None
    page = urllib.request.urlopen(f"http://{ours.http}/metrics").read().decode()
    assert "# TYPE requests_process_latency_ns counter" in page
    assert 'requests_process_latency_ns{model="custom_metrics",version="1"}' in page


def test_many_requests_of_a_stream_run_at_once(ours: Headrace) -> None:
    requests = [("repeat_int32", {"IN": np.arange(5, dtype=np.int32), "DELAY": np.full(5, 200, np.uint32),
                                  "WAIT": np.array([0], np.uint32)}) for _ in range(20)]  # fmt: skip
    began = time.monotonic()
    outcomes = stream(ours.grpc, requests)
    assert [len(one) for one in outcomes] == [6] * 20
    assert time.monotonic() - began < 20 * 5 * 0.2, "each request waited for the one before"


def alike(ours: Outcome, theirs: Outcome) -> bool:
    """Equal, but for words after Triton's own sentence in errors of the server."""
    if ours.error is None or theirs.error is None:
        assert ours == theirs
        return True
    (status, message), (expected, words) = ours.error, theirs.error
    assert status == expected, (ours, theirs)
    return message.startswith(words[:40]) or words.startswith(message[:40]) or pytest.fail(f"{message!r} {words!r}")
