"""OpenAI's hosted API and compatible APIs, each with its differences."""

import pytest

from adapters.conformance import requests
from adapters.conformance.bench import gauge
from adapters.conformance.subject import Subject, pool
from tests.conformance.recorded import conforms, every_feature
from tests.conformance.subjects import chatting, no_tensors
from tests.servers.stand_ins.openai_family import KEY, MODEL, Family, Server, server

pytestmark = pytest.mark.plain
MAX_TOKENS = frozenset({"max_tokens"})
SGLANG = "sglang:num_running_reqs RUNNING\nsglang:num_queue_reqs 0\n"

FAMILY = [
    Family("OpenAI", {"dialect": "openai"}, "system", key_header="authorization",
           lengths=frozenset({"max_completion_tokens"})),
    Family("Azure OpenAI", {"dialect": "azure"}, "system", root="/openai/v1", key_header="api-key",
           lengths=frozenset({"max_completion_tokens"})),
    Family("Mistral", {"dialect": "mistral"}, "mistralai", key_header="authorization", lengths=MAX_TOKENS,
           fields=frozenset({"random_seed"}), strict=True, error="detail"),
    Family("Groq", {"dialect": "groq"}, "Meta", root="/openai/v1", key_header="authorization"),
    Family("SGLang", {"dialect": "sglang"}, "sglang", error="flat", checks_model=False,
           paths={"/health": "", "/server_info": {"version": "0.5"}, "/metrics": SGLANG}),
    Family("Ollama", {"dialect": "ollama"}, "library", lengths=MAX_TOKENS,
           paths={"/": "Ollama is running", "/api/version": {"version": "0.13"}}),
    Family("LM Studio", {"dialect": "lm-studio"}, "organization_owner", lengths=MAX_TOKENS, error="text"),
    Family("TensorRT-LLM, trtllm-serve", {"dialect": "tensorrt-llm"}, "tensorrt_llm", error="flat",
           checks_model=False, paths={"/health": "", "/version": {"version": "1.2"},
           "/metrics": [{"iter": 1, "numActiveRequests": 1, "numQueuedRequests": 0}]}),
    Family("OpenVINO Model Server, text", {"dialect": "openvino"}, "OVMS", root="/v3", error="text",
           paths={"/v2/health/ready": "", "/v2": {"name": "OpenVINO Model Server", "version": "2026.3"},
                  "/metrics": "ovms_current_requests RUNNING\n"}),
    Family("any other that speaks OpenAI, without [DONE]", {}, "somebody", done=False, paths={"/health": ""}),
]  # fmt: skip


def subject(running: Server) -> Subject:
    family = running.family
    lacks, unseen = no_tensors("OpenAI's protocol"), {}
    loads = family.owner in ("library", "sglang")
    if not loads:
        lacks["load and unload"] = "Its operator manages its models."
    if not family.checks_model:
        unseen["unknown model"] = "It accepts any name for its one model."
    if "/metrics" not in family.paths:
        unseen["load signals"] = "It reports no load."
    key = {"key": KEY} if family.key_header else {}
    return chatting(
        MODEL,
        system=family.system,
        version="as documented",
        how="conformance server",
        pool=pool({"name": "openai", **family.protocol}, running.url, **key),
        pieces=5,
        long=requests.chat(MODEL, stream=True, max_tokens=20_000),
        running=gauge(f"{running.url}/running", "running"),
        signals=f"{running.url}/metrics" if "/metrics" in family.paths else "",
        order=MODEL if loads else "",
        lacks=lacks,
        unseen=unseen,
    )


@every_feature
@pytest.mark.parametrize("family", FAMILY, ids=lambda family: family.system)
async def test_conforms(family: Family, feature: str) -> None:
    async with server(family) as running:
        await conforms(subject(running), feature)
