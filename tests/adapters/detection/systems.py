"""The marks that identify each system, from its source, its documents or real responses."""

from typing import Any, NamedTuple


class System(NamedTuple):
    name: str
    protocol: dict[str, Any]
    models: list[str]
    paths: dict[str, Any]
    version: str = ""
    names: tuple[str, ...] = ()
    """Models that an operator declares."""


def owned(owner: str, *names: str, **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", "owned_by": owner, **more} for name in names]}


META = {
    "name": "m",
    "versions": ["1"],
    "platform": "python",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
}
OPENAI = {"name": "openai"}

SYSTEMS = [
    System(
        "NVIDIA Triton",
        {"name": "oip-http"},
        ["m", "sum"],
        version="2.51.0",
        paths={
            "/v2": {"name": "triton", "version": "2.51.0", "extensions": ["model_repository"]},
            "POST /v2/repository/index": [
                {"name": "m", "version": "1", "state": "READY"},
                {"name": "sum", "version": "2", "state": "READY"},
                {"name": "ill", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
            ],
            "/v2/models/m": META,
        },
    ),
    System(
        "KServe model server",
        {"name": "oip-http", "server": "kserve"},
        ["m"],
        version="0.21.0",
        paths={
            "/v2": {"name": "kserve", "version": "0.21.0", "extensions": ["model_repository_extension"]},
            "/v2/models": {"models": ["m"]},
            "/v2/models/m": META,
            "/v1/models": {"models": ["m"]},
        },
    ),
    System(
        "MLServer",
        {"name": "oip-http", "server": "mlserver"},
        ["m"],
        version="1.7.1",
        paths={
            "/v2": {"name": "mlserver", "version": "1.7.1", "extensions": []},
            "POST /v2/repository/index": [{"name": "m", "version": "v1", "state": "READY", "reason": ""}],
        },
    ),
    System(
        "OpenVINO Model Server",
        {"name": "oip-http", "server": "openvino"},
        ["m"],
        version="2026.3",
        paths={
            "/v2": {"name": "OpenVINO Model Server", "version": "2026.3"},
            "/v1/config": {"m": {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}},
        },
    ),
    System(
        "vLLM",
        {**OPENAI, "dialect": "vllm"},
        ["a/b"],
        {"/v1/models": owned("vllm", "a/b", max_model_len=2048), "/version": {"version": "0.32.0"}},
        "0.32.0",
    ),
    System(
        "SGLang",
        {**OPENAI, "dialect": "sglang"},
        ["a/b"],
        {"/v1/models": owned("sglang", "a/b"), "/server_info": {"version": "0.5.5"}},
        "0.5.5",
    ),
    System(
        "llama.cpp",
        {**OPENAI, "dialect": "llama.cpp"},
        ["q.gguf"],
        {"/v1/models": owned("llamacpp", "q.gguf"), "/props": {"total_slots": 4, "build_info": "b11434"}},
        "b11434",
    ),
    System(
        "TensorRT-LLM",
        {**OPENAI, "dialect": "tensorrt-llm"},
        ["m"],
        {"/v1/models": owned("tensorrt_llm", "m"), "/version": {"version": "1.2.0"}},
        "1.2.0",
    ),
    System(
        "Ollama",
        {**OPENAI, "dialect": "ollama"},
        ["smollm:135m"],
        {"/v1/models": owned("hub", "smollm:135m"), "/api/version": {"version": "0.13.1"}},
        "0.13.1",
    ),
    System("LM Studio", {**OPENAI, "dialect": "lm-studio"}, ["m"], {"/v1/models": owned("organization_owner", "m")}),
    System("OpenAI", {**OPENAI, "dialect": "openai"}, ["gpt-5"], {"/v1/models": owned("system", "gpt-5")}),
    System("a server that speaks OpenAI", OPENAI, ["m"], {"/v1/models": owned("somebody", "m")}),
    System(
        "a server that speaks OpenAI",
        OPENAI,
        [],
        {
            "/v1/models": (
                401,
                {"error": {"message": "no key", "type": "invalid_request_error", "code": "invalid_api_key"}},
            )
        },
    ),
    System(
        "Anthropic",
        {"name": "anthropic"},
        [],
        {
            "/v1/models": (
                401,
                {"type": "error", "error": {"type": "authentication_error", "message": "x-api-key is required"}},
            )
        },
    ),
    System(
        "Gemini",
        {"name": "gemini"},
        ["gemini-3-flash"],
        {
            "/v1beta/models": {
                "models": [
                    {
                        "name": "models/gemini-3-flash",
                        "inputTokenLimit": 9,
                        "supportedGenerationMethods": ["generateContent"],
                    },
                ]
            }
        },
    ),
    System(
        "Gemini",
        {"name": "gemini"},
        [],
        {"/v1/models": (403, {"error": {"code": 403, "message": "no key", "status": "PERMISSION_DENIED"}})},
    ),
    System(
        "Text Generation Inference",
        {**OPENAI, "dialect": "tgi"},
        ["a/b"],
        version="3.3.7",
        paths={
            "/info": {"model_id": "a/b", "version": "3.3.7", "max_total_tokens": 2048},
            "/v1/models": owned("a/b", "a/b"),
        },
    ),
    System(
        "BentoML",
        {"name": "bentoml"},
        ["predict", "classify"],
        {
            "/schema.json": {
                "name": "s",
                "type": "service",
                "routes": [{"name": "predict", "route": "/predict"}, {"name": "classify", "route": "/c"}],
            }
        },
    ),
    System("Ray Serve", {"name": "ray-serve"}, ["default"], {"/-/routes": {"/": "default"}, "/-/healthz": "success"}),
    System(
        "TorchServe",
        {"name": "torchserve"},
        [],
        {"/ping": (400, {"code": 400, "type": "InvalidKeyException", "message": "Token Authorization failed."})},
    ),
    System("TorchServe", {"name": "torchserve"}, ["m"], {"/ping": {"status": "Healthy"}}, names=("m",)),
    System("KServe, protocol v1", {"name": "kserve-v1"}, ["m"], {"/v1/models": {"models": ["m"]}}),
    System(
        "TensorFlow Serving",
        {"name": "tfserving"},
        ["half"],
        names=("half", "none"),
        paths={
            "/v1/models": (400, {"error": "Missing model name in request."}),
            "/v1/models/half": {
                "model_version_status": [{"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK"}}]
            },
        },
    ),
    System("a server that speaks OpenAI", OPENAI, ["m"], {"/openai/v1/models": owned("Meta", "m")}),
]
