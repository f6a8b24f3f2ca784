"""The dialects of hosted APIs: one row each. Sources: their API references and official clients, November 2026."""

from types import MappingProxyType

from msgspec import Raw

from adapters.types import Feature
from adapters.wire.openai.dialects import (
    LOCAL,
    MODELS,
    REACHABLE,
    TO_MAX_COMPLETION_TOKENS,
    TO_MAX_TOKENS,
    Lack,
    ModelReplay,
    OpenAIDialect,
)
from adapters.wire.openai.history import EXTRA, OWN_FIELDS

_REASONING, _CONTENT = "reasoning", "reasoning_content"
_NO_SCHEMA: frozenset[Feature] = frozenset({"json_schema"})
_NO_IMAGES: frozenset[Feature] = frozenset({"vision"})
_NO_TOOLS: frozenset[Feature] = frozenset({"tools"})
_LOGPROBS = frozenset({"logprobs", "top_logprobs"})
_PENALTIES = frozenset({"frequency_penalty", "presence_penalty"})
_OF_OPENAI = frozenset({
    "audio", "metadata", "modalities", "prediction", "prompt_cache_retention", "safety_identifier", "service_tier",
    "store", "verbosity", "web_search_options",
})  # fmt: skip
"""Fields that only OpenAI has a use for; APIs with a closed list of fields refuse them."""
_HIGH = Raw(b'"high"')
_HIGH_OR_NONE = dict.fromkeys((b'"minimal"', b'"low"', b'"medium"', b'"xhigh"'), _HIGH)


def _all_but(*names: str) -> frozenset[str]:
    """The fields of other servers' turns that a provider refuses, which takes its own back."""
    return OWN_FIELDS - set(names)


def _lacks(*names: str) -> tuple[Lack, ...]:
    return (Lack(frozenset(names)),)


HOSTED = {
    "openai": OpenAIDialect(  # many servers report OpenAI as the owner
        (MODELS,), TO_MAX_COMPLETION_TOKENS, refuses=OWN_FIELDS, system="OpenAI", hosts=("api.openai.com",),
        late_system=True,
    ),
    "azure": OpenAIDialect(
        (MODELS,), TO_MAX_COMPLETION_TOKENS, root="/openai/v1", refuses=OWN_FIELDS, system="Azure OpenAI",
        hosts=("*.openai.azure.com", "*.services.ai.azure.com", "*.cognitiveservices.azure.com"), late_system=True,
    ),
    "mistral": OpenAIDialect(
        (MODELS,), {**TO_MAX_TOKENS, "seed": "random_seed"}, takes_stream_options=False,
        owners=frozenset({"mistralai"}), refuses=OWN_FIELDS, system="Mistral",
        hosts=("api.mistral.ai", "codestral.mistral.ai"),
        lacks=(Lack(_LOGPROBS | (_OF_OPENAI - {"metadata", "prediction"}) | {"logit_bias", "min_p", "top_k", "user"}),),
        words={"reasoning_effort": _HIGH_OR_NONE},
        thinking="effort", replays=(ModelReplay("chunks"),),
    ),
    "groq": OpenAIDialect(
        (MODELS,), root="/openai/v1", refuses=_all_but(_REASONING) | {"name"}, system="Groq", hosts=("api.groq.com",),
        lacks=(Lack(_LOGPROBS | {"logit_bias", "n"}),), thoughts=(_REASONING,),
    ),
    "gemini": OpenAIDialect(
        (MODELS,), root="/v1beta/openai", owners=frozenset({"google"}), refuses=_all_but(EXTRA), signs=True,
        system="Gemini, OpenAI API", hosts=("generativelanguage.googleapis.com",),
    ),
    "vertex": OpenAIDialect(
        (REACHABLE,), root="/endpoints/openapi", refuses=_all_but(EXTRA), signs=True, system="Vertex AI, OpenAI API",
        hosts=("aiplatform.googleapis.com", "*-aiplatform.googleapis.com"),
    ),
    "bedrock": OpenAIDialect(
        (REACHABLE,), root="/openai/v1", refuses=OWN_FIELDS, system="Bedrock, OpenAI API",
        hosts=("bedrock-runtime.*.amazonaws.com", "bedrock-mantle.*.api.aws"),
        errors={"424": "server_error"},
    ),
    "deepseek": OpenAIDialect(
        (MODELS,), TO_MAX_TOKENS, owners=frozenset({"deepseek"}), refuses=_all_but(_CONTENT), system="DeepSeek",
        hosts=("api.deepseek.com",), lacks=_lacks("logit_bias", "min_p", "n", "seed", "top_k"),
        without=_NO_SCHEMA | _NO_IMAGES, thinking="type", thoughts=(_CONTENT,),
        replays=(ModelReplay("each", "v4"), ModelReplay("loop")),
    ),
    "xai": OpenAIDialect(
        (MODELS,), TO_MAX_COMPLETION_TOKENS, owners=frozenset({"xai"}), refuses=OWN_FIELDS, system="xAI",
        hosts=("api.x.ai", "*.api.x.ai"),
        lacks=(
            Lack(frozenset({"logit_bias"})),
            Lack(_PENALTIES | {"stop"}, r"grok-(4|code)(?!.*non-reasoning)"),
            Lack(frozenset({"reasoning_effort"}), r"grok-4(\.20|\b(?!\.))"),
        ),
        repeats=True,
    ),
    "openrouter": OpenAIDialect(
        (MODELS,), root="/api/v1", refuses=_all_but(_REASONING, "reasoning_details"), system="OpenRouter",
        hosts=("openrouter.ai",), thinking="reasoning", thoughts=(_REASONING,),
    ),
    "together": OpenAIDialect(
        (MODELS,), TO_MAX_TOKENS, refuses=OWN_FIELDS, system="Together",
        hosts=("api.together.xyz", "api.together.ai"), lacks=_lacks("top_logprobs"),
        words={"logprobs": {b"true": Raw(b"1"), b"false": None}}, thinking="switch",
    ),
    "fireworks": OpenAIDialect(
        (MODELS,), root="/inference/v1", owners=frozenset({"fireworks"}), refuses=_all_but(_CONTENT),
        system="Fireworks", hosts=("api.fireworks.ai",), thinking="budget", thoughts=(_CONTENT,),
        errors={"412": "billing_error"},
    ),
    "cerebras": OpenAIDialect(
        (MODELS,), TO_MAX_COMPLETION_TOKENS, owners=frozenset({"Cerebras"}), refuses=_all_but(_REASONING),
        system="Cerebras", hosts=("api.cerebras.ai",), lacks=(Lack(_PENALTIES | {"logit_bias", "n"}),),
        without=_NO_IMAGES, thoughts=(_REASONING,),
    ),
    "perplexity": OpenAIDialect(
        (REACHABLE,), TO_MAX_TOKENS, takes_stream_options=False, root="", refuses=OWN_FIELDS, system="Perplexity",
        hosts=("api.perplexity.ai",),
        lacks=(Lack(_LOGPROBS | {"logit_bias", "n", "parallel_tool_calls", "seed", "tool_choice", "user"}),),
        without=_NO_TOOLS,
    ),
    "cohere": OpenAIDialect(
        (REACHABLE,), TO_MAX_TOKENS, root="/compatibility/v1", refuses=OWN_FIELDS, system="Cohere, OpenAI API",
        hosts=("api.cohere.ai", "api.cohere.com"),
        lacks=(Lack(_OF_OPENAI | {"logit_bias", "n", "parallel_tool_calls", "top_logprobs", "user"}),),
        words={"reasoning_effort": _HIGH_OR_NONE, "tool_choice": {b'"auto"': None}}, names_tools=False,
        thinking="effort", errors={"498": "invalid_api_key", "499": "timeout_error"},
        beside={"/rerank": "/v1/rerank"},
    ),
    "moonshot": OpenAIDialect(
        (MODELS,), TO_MAX_TOKENS, owners=frozenset({"moonshot"}), refuses=_all_but(_CONTENT), system="Moonshot",
        hosts=("api.moonshot.ai", "api.moonshot.cn"), lacks=_lacks("logit_bias"), thinking="type", thoughts=(_CONTENT,),
        replays=(ModelReplay("all"),),
        errors={"exceeded_current_quota_error": "billing_error", "content_filter": "content_filter"},
    ),
    "zai": OpenAIDialect(
        (MODELS,), {**TO_MAX_TOKENS, "user": "user_id"}, root="/api/paas/v4", owners=frozenset({"z-ai"}),
        refuses=_all_but(_CONTENT), system="Z.ai", hosts=("api.z.ai", "open.bigmodel.cn"),
        lacks=(Lack(_LOGPROBS | _PENALTIES | {"logit_bias", "n", "parallel_tool_calls", "seed"}),),
        without=_NO_SCHEMA, thinking="type", thoughts=(_CONTENT,),
        errors={"1113": "billing_error", "1301": "content_filter", "1305": "service_unavailable"},
    ),
    "dashscope": OpenAIDialect(
        (MODELS,), TO_MAX_TOKENS, root="/compatible-mode/v1", refuses=_all_but(_CONTENT), system="DashScope",
        hosts=("dashscope.aliyuncs.com", "dashscope-*.aliyuncs.com"), lacks=_lacks("logit_bias"), thinking="flat",
        thoughts=(_CONTENT,),
        errors={
            "Arrearage": "billing_error", "data_inspection_failed": "content_filter",
            "insufficient_quota": "RESOURCE_EXHAUSTED", "limit_requests": "RESOURCE_EXHAUSTED",
        },
    ),
    "deepinfra": OpenAIDialect(
        (MODELS,), TO_MAX_TOKENS, root="/v1/openai", refuses=_all_but(_CONTENT), system="DeepInfra",
        hosts=("api.deepinfra.com",), lacks=_lacks("logit_bias"), thoughts=(_CONTENT,),
    ),
    "github": OpenAIDialect(
        (REACHABLE,), root="/inference", refuses=OWN_FIELDS, system="GitHub Models", hosts=("models.github.ai",),
    ),
    "databricks": OpenAIDialect(
        (REACHABLE,), TO_MAX_TOKENS, root="/serving-endpoints", refuses=OWN_FIELDS, system="Databricks",
        hosts=("*.cloud.databricks.com", "*.azuredatabricks.net", "*.gcp.databricks.com"), thinking="budget",
        errors={"REQUEST_LIMIT_EXCEEDED": "rate_limit_error"},
    ),
    "huggingface": OpenAIDialect(
        (MODELS,), refuses=OWN_FIELDS, system="Hugging Face router", hosts=("router.huggingface.co",),
    ),
    "cloudflare": OpenAIDialect(
        (REACHABLE,), TO_MAX_TOKENS, root="/ai/v1", refuses=OWN_FIELDS, system="Cloudflare",
        hosts=("api.cloudflare.com", "gateway.ai.cloudflare.com"), errors={"10000": "invalid_api_key"},
    ),
}  # fmt: skip
"""The hosted APIs by the name of their dialect."""
DIALECTS = MappingProxyType({**HOSTED, **LOCAL})
"""Every dialect by its name."""
