"""The errors of hosted APIs of OpenAI's family: a status and a body for each way to fail."""

from typing import Any

from tests.support.providers.script import Failure

Refusal = tuple[int, dict[str, Any]]


def _nested(message: str, type_: str | None = None, code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


_PLAN = "You exceeded your current quota, please check your plan and billing details."
USUAL: dict[Failure, Refusal] = {
    "no credit": (429, _nested(_PLAN, "insufficient_quota", "insufficient_quota")),
    "moderation": (400, _nested("Your request was rejected by the safety system.", "invalid_request_error",
                                "content_policy_violation")),
    "bad key": (401, _nested("Incorrect API key provided.", "invalid_request_error", "invalid_api_key")),
    "rate": (429, _nested("Rate limit reached. Please try again in 2s.", "requests", "rate_limit_exceeded")),
    "in the stream": (200, _nested("The server had an error.", "server_error")),
}  # fmt: skip
"""OpenAI's."""
OWN: dict[str, dict[Failure, Refusal]] = {
    "azure": {
        "moderation": (400, {"error": {
            "message": "The response was filtered due to the prompt triggering Azure's content management policy.",
            "type": None, "param": "prompt", "code": "content_filter", "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation",
                           "content_filter_result": {"hate": {"filtered": True, "severity": "high"}}}}}),
    },
    "mistral": {
        "no credit": (402, {"object": "error", "message": "Payment required", "type": "billing", "code": "1700"}),
        "bad key": (401, {"detail": "Unauthorized"}),
        "rate": (429, {"object": "error", "message": "Service tier capacity exceeded for this model.",
                       "type": "service_tier_capacity_exceeded", "param": None, "code": "3505"}),
        "moderation": (403, {"object": "error", "message": "Your request was blocked by the guardrail.",
                             "type": "guardrail_violation", "param": None, "code": "1920"}),
        "in the stream": (200, {"object": "error", "message": "Internal error", "type": "internal_server_error"}),
    },
    "groq": {
        "rate": (498, _nested("Flex tier capacity exceeded", "flex_tier", "capacity_exceeded")),
        "in the stream": (200, {"error": {"message": "Failed to call a function.", "type": "invalid_request_error",
                                          "code": "tool_use_failed", "failed_generation": "{", "status_code": 400}}),
    },
    "gemini": {
        "bad key": (400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
                                    "status": "INVALID_ARGUMENT"}}),
        "rate": (429, {"error": {"code": 429, "message": "Resource has been exhausted (e.g. check quota).",
                                 "status": "RESOURCE_EXHAUSTED"}}),
    },
    "bedrock": {
        "rate": (429, {"message": "Too many requests, please wait before trying again."}),
        "bad key": (403, {"message": "Authentication failed: Please make sure your API Key is valid."}),
        "no credit": (402, {"message": "Payment required"}),
    },
    "deepseek": {
        "no credit": (402, _nested("Insufficient Balance", "unknown_error", "invalid_request_error")),
        "rate": (503, _nested("Service is too busy.", "service_unavailable_error")),
        "moderation": (400, _nested("Content Exists Risk", "invalid_request_error", "invalid_request_error")),
    },
    "xai": {
        "no credit": (429, {"code": "Some resource has been exhausted", "error": "Your team has either used all "
                            "available credits or reached its monthly spending limit."}),
        "bad key": (400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: k*y."}),
        "moderation": (403, {"code": "The caller does not have permission", "error": "Content violates usage "
                             "guidelines. Failed check: SAFETY_CHECK_TYPE_CSAM"}),
        "in the stream": (200, {"code": "Internal", "error": "The service is in trouble"}),
    },
    "openrouter": {
        "no credit": (402, {"error": {"code": 402, "message": "Insufficient credits. Add more using your account."},
                            "user_id": "u"}),
        "moderation": (403, {"error": {"code": 403, "message": "Your input was flagged", "metadata": {
            "reasons": ["violence"], "provider_name": "OpenAI", "flagged_input": "…"}}}),
        "rate": (429, {"error": {"code": 429, "message": "Provider returned error", "metadata": {
            "raw": "m is temporarily rate-limited upstream", "provider_name": "X"}}, "user_id": "u"}),
        "in the stream": (200, {"id": "gen-1", "object": "chat.completion.chunk", "error": {
            "code": 502, "message": "Provider disconnected"},
            "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}),
    },
    "together": {"no credit": (402, _nested("Credit limit exceeded.", "credit_limit"))},
    "fireworks": {
        "no credit": (412, {"error": {"object": "error", "type": "invalid_request_error", "code": "PRECONDITION_FAILED",
                      "message": "Account a is suspended, possibly due to reaching the monthly spending limit."}}),
        "bad key": (401, {"error": "unauthorized"}),
    },
    "cerebras": {
        "no credit": (402, {"message": "Payment required.", "type": "payment_required_error", "code": "billing"}),
        "rate": (429, {"message": "We're experiencing high traffic right now!", "type": "too_many_requests_error",
                       "param": "queue", "code": "queue_exceeded"}),
    },
    "perplexity": {"bad key": (401, _nested("Invalid API key provided.", "invalid_api_key", 401))},
    "cohere": {
        "no credit": (402, {"message": "please add or update your payment method to continue"}),
        "moderation": (422, {"message": "the content was blocked"}),
        "bad key": (498, {"message": "invalid api token"}),
        "rate": (429, {"message": "trial token rate limit exceeded, limit is 40 calls per minute"}),
        "in the stream": (200, {"message": "internal server error", "error": {"message": "internal server error"}}),
    },
    "moonshot": {
        "no credit": (429, _nested("Your account org-1 is suspended, please check your plan and billing details",
                                   "exceeded_current_quota_error")),
        "rate": (429, _nested("Your account org-1 request reached max RPM: 3, please try again after 1 seconds",
                              "rate_limit_reached_error")),
        "moderation": (400, _nested("The request was rejected because it was considered high risk", "content_filter")),
    },
    "zai": {
        "no credit": (429, {"error": {"code": "1113", "message": "Insufficient balance or no resource package."}}),
        "moderation": (400, {"error": {"code": "1301", "message": "System detected potentially unsafe content."}}),
        "bad key": (401, {"error": {"code": "1001", "message": "Authentication parameter not received in Header"}}),
        "rate": (429, {"error": {"code": "1302", "message": "High concurrency usage of this API, please reduce it"}}),
        "in the stream": (200, {"error": {"code": "1234", "message": "Network error"}}),
    },
    "dashscope": {
        "no credit": (400, _nested("Access denied, please make sure your account is in good standing.", "Arrearage",
                                   "Arrearage")),
        "rate": (429, _nested(_PLAN, "insufficient_quota", "insufficient_quota")),
        "moderation": (400, _nested("Input data may contain inappropriate content.", "data_inspection_failed",
                                    "data_inspection_failed")),
    },
    "deepinfra": {"no credit": (402, {"detail": "Your balance is too low."})},
    "github": {"rate": (429, {"error": {"code": "RateLimitReached", "message": "Rate limit of 15 per 60s exceeded.",
                                        "details": "Please wait 8 seconds before retrying."}})},
    "databricks": {
        "rate": (429, {"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "Exceeded output tokens per minute."}),
        "bad key": (403, {"error_code": "PERMISSION_DENIED", "message": "Invalid access token."}),
        "no credit": (402, {"error_code": "BILLING", "message": "Payment required"}),
    },
    "huggingface": {
        "no credit": (402, {"error": "You have exceeded your monthly included credits for Inference Providers."}),
        "bad key": (401, {"error": "Invalid username or password."}),
    },
    "cloudflare": {
        "bad key": (401, {"success": False, "errors": [{"code": 10000, "message": "Authentication error"}],
                          "messages": [], "result": None}),
        "rate": (429, {"success": False, "errors": [{"code": 3040, "message": "Capacity temporarily exceeded"}]}),
        "no credit": (402, {"errors": [{"code": 1, "message": "Payment required"}], "success": False}),
    },
}  # fmt: skip


def refusal(name: str, failure: Failure) -> Refusal:
    """The provider's own form, or the usual one."""
    return OWN.get(name, {}).get(failure) or USUAL[failure]
