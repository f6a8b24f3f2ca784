"""Hosted services: the request of each, strictly, and what each answer means."""

import base64
import hmac
import json
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from adapters.fake import FakeAdapter, Script
from adapters.requests import AppRequest
from adapters.types import APP
from gateway.features.guards.judges.services import SERVICES, has_match
from tests.support.guarding import received
from tests.support.judging import answer, judged, prompt_of

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
TEMPLATE = "projects/p/locations/europe-west4/templates/t"
REQUESTS: dict[str, tuple[dict[str, Any], str, str, Any, Any]] = {
    "openai-moderation": (
        {}, "/v1/moderations", "", {"model": "omni-moderation-latest", "input": "a zebra"},
        {"model": "omni-moderation-latest", "input": "fine"},
    ),
    "bedrock-guardrail": (
        {"resource": "abc123/DRAFT"}, "/guardrail/abc123/version/DRAFT/apply", "",
        {"source": "INPUT", "content": [{"text": {"text": "a zebra"}}]},
        {"source": "OUTPUT", "content": [{"text": {"text": "fine"}}]},
    ),
    "azure-content-safety": (
        {"severity": 4}, "/contentsafety/text:analyze", "api-version=2024-09-01",
        {"text": "a zebra", "outputType": "EightSeverityLevels"},
        {"text": "fine", "outputType": "EightSeverityLevels"},
    ),
    "azure-prompt-shields": (
        {}, "/contentsafety/text:shieldPrompt", "api-version=2024-09-01",
        {"userPrompt": "a zebra", "documents": []},
        {"userPrompt": "", "documents": ["fine"]},
    ),
    "model-armor": (
        {"resource": TEMPLATE}, f"/v1/{TEMPLATE}:sanitizeUserPrompt", "", {"userPromptData": {"text": "a zebra"}},
        {"modelResponseData": {"text": "fine"}},
    ),
    "lakera": (
        {}, "/v2/guard", "", {"messages": [{"role": "user", "content": "a zebra"}]},
        {"messages": [{"role": "assistant", "content": "fine"}]},
    ),
}  # fmt: skip
"""By service: fields of the guard, the path and the query for a prompt, and the bodies for a prompt and an answer."""
PASSING: dict[str, Any] = {
    "openai-moderation": {"id": "m", "model": "omni", "results": [{"flagged": False, "categories": {}}]},
    "bedrock-guardrail": {"action": "NONE", "outputs": [], "assessments": [{}], "usage": {}},
    "azure-content-safety": {"blocklistsMatch": [], "categoriesAnalysis": [{"category": "Hate", "severity": 2}]},
    "azure-prompt-shields": {"userPromptAnalysis": {"attackDetected": False}, "documentsAnalysis": []},
    "model-armor": {"sanitizationResult": {"filterMatchState": "NO_MATCH_FOUND", "invocationResult": "SUCCESS"}},
    "lakera": {"flagged": False, "metadata": {"request_uuid": "1"}},
}
MATCHING: dict[str, Any] = {
    "openai-moderation": {"results": [{"flagged": False}, {"flagged": True}]},
    "bedrock-guardrail": {"action": "GUARDRAIL_INTERVENED", "outputs": [{"text": "no"}]},
    "azure-content-safety": {"categoriesAnalysis": [{"category": "Hate", "severity": 4}]},
    "azure-prompt-shields": {
        "userPromptAnalysis": {"attackDetected": False}, "documentsAnalysis": [{"attackDetected": True}],
    },
    "model-armor": {"sanitizationResult": {"filterMatchState": "MATCH_FOUND"}},
    "lakera": {"flagged": True},
}  # fmt: skip


def service(body: Any) -> FakeAdapter:
    return FakeAdapter(Script(chunks=(json.dumps(body).encode(),), form=APP))


def guard(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": "g", "kind": "webhook", "model": "judge", "service": name, **fields}


def sent(one: FakeAdapter, index: int) -> AppRequest:
    request = one.calls[index].request
    assert isinstance(request, AppRequest)
    return request


@pytest.mark.parametrize("name", SERVICES)
async def test_the_requests_of_a_service(name: str) -> None:
    fields, path, query, of_prompt, of_answer = REQUESTS[name]
    hosted = service(PASSING[name])
    one = judged(answer("fine"), hosted, guard(name, **fields), protocol="http")
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 200
    first, second = sent(hosted, 0), sent(hosted, 1)
    assert (first.method, first.path, first.query) == ("POST", path, query)
    assert (first.content_type, first.accept, first.own_headers) == ("application/json", "application/json", ())
    assert json.loads(first.body) == of_prompt
    assert json.loads(second.body) == of_answer
    assert second.path == path.replace("sanitizeUserPrompt", "sanitizeModelResponse")
    one.assert_idle()


@pytest.mark.parametrize("name", SERVICES)
async def test_a_match_of_a_service_is_blocked(name: str) -> None:
    one = judged(answer("fine"), service(MATCHING[name]), guard(name, **REQUESTS[name][0]), protocol="http")
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 400


@pytest.mark.parametrize(
    "body",
    [
        {}, [], {"error": "no"}, "text", None, {"results": {}}, {"results": []}, {"categoriesAnalysis": []},
        {"action": ["NONE"]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", SERVICES)
async def test_an_answer_of_another_form_is_a_failure(name: str, body: Any) -> None:
    with pytest.raises(ValueError, match="no verdict"):
        has_match(name, body, 4)


async def test_our_contract_is_signed() -> None:
    hosted = service({"version": 1, "verdict": "found"})
    one = judged(answer("fine"), hosted, guard("headrace", secret=SECRET), protocol="http")
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == 400
    request = sent(hosted, 0)
    verified = Webhook(SECRET).verify(request.body, dict(request.own_headers))
    assert verified == {
        "version": 1, "guard": "g", "request_id": one.log.records[0].request_id, "tenant": "acme", "model": "chat",
        "side": "prompt", "text": "a zebra",
    }  # fmt: skip
    headers = dict(request.own_headers)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    expected = base64.b64encode(hmac.digest(b"k" * 32, signed, "sha256")).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


@pytest.mark.parametrize(
    "body", [{"verdict": "found"}, {"version": 2, "verdict": "pass"}, {"version": 1, "verdict": True}, []]
)
async def test_a_verdict_of_another_version_is_a_failure(body: Any) -> None:
    one = judged(answer("fine"), service(body), guard("headrace", secret=SECRET), protocol="http")
    ((status, text, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert (status, json.loads(text)["error"]["code"]) == (502, "guard_failed")
