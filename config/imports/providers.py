"""The hosted APIs and servers that other gateways name, as pools: address, protocol, and the variable of the key."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class ProviderRow(NamedTuple):
    """One provider, or one kind of server."""

    url: str = ""
    """Its address; empty if every customer has another."""
    key: str = ""
    """The environment variable in which its clients expect the key; empty for servers without one."""
    protocol: str | Mapping[str, Any] = "openai"
    """The protocol of the pool."""
    local: bool = False
    """Whether it is a server of one's own, whose health can be checked."""
    passes: tuple[str, ...] = ()
    """Calls beyond chats, completions and embeddings."""


def _family(dialect: str, **options: Any) -> dict[str, Any]:
    return {"name": "openai", "dialect": dialect, **options}


def _rooted(root: str) -> dict[str, Any]:
    return {"name": "openai", "root": root}


_OPENAI = ProviderRow(
    "https://api.openai.com",
    "OPENAI_API_KEY",
    _family("openai", responses=True),
    passes=("audio", "images", "moderations"),
)
_TOGETHER = ProviderRow("https://api.together.xyz", "TOGETHERAI_API_KEY", _family("together"), passes=("rerank",))
_COHERE = ProviderRow("https://api.cohere.ai", "COHERE_API_KEY", _family("cohere"))
_ZAI = ProviderRow("https://api.z.ai", "ZAI_API_KEY", _family("zai"))
_VLLM = ProviderRow(key="HOSTED_VLLM_API_KEY", protocol=_family("vllm"), local=True, passes=("rerank", "score"))
_OWN = ProviderRow(local=True)
_OLLAMA = ProviderRow("http://localhost:11434", protocol=_family("ollama"), local=True)
_FIREWORKS = ProviderRow("https://api.fireworks.ai", "FIREWORKS_AI_API_KEY", _family("fireworks"))

PROVIDERS: Mapping[str, ProviderRow] = {
    "openai": _OPENAI,
    "anthropic": ProviderRow("https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic"),
    "gemini": ProviderRow("https://generativelanguage.googleapis.com", "GEMINI_API_KEY", "gemini"),
    "mistral": ProviderRow("https://api.mistral.ai", "MISTRAL_API_KEY", _family("mistral")),
    "codestral": ProviderRow("https://codestral.mistral.ai", "CODESTRAL_API_KEY", _family("mistral")),
    "groq": ProviderRow("https://api.groq.com", "GROQ_API_KEY", _family("groq"), passes=("audio",)),
    "deepseek": ProviderRow("https://api.deepseek.com", "DEEPSEEK_API_KEY", _family("deepseek")),
    "xai": ProviderRow("https://api.x.ai", "XAI_API_KEY", _family("xai")),
    "openrouter": ProviderRow("https://openrouter.ai", "OPENROUTER_API_KEY", _family("openrouter")),
    "together_ai": _TOGETHER,
    "fireworks_ai": _FIREWORKS,
    "cerebras": ProviderRow("https://api.cerebras.ai", "CEREBRAS_API_KEY", _family("cerebras")),
    "perplexity": ProviderRow("https://api.perplexity.ai", "PERPLEXITYAI_API_KEY", _family("perplexity")),
    "cohere": _COHERE,
    "deepinfra": ProviderRow("https://api.deepinfra.com", "DEEPINFRA_API_KEY", _family("deepinfra")),
    "sambanova": ProviderRow("https://api.sambanova.ai", "SAMBANOVA_API_KEY"),
    "nvidia_nim": ProviderRow("https://integrate.api.nvidia.com", "NVIDIA_NIM_API_KEY"),
    "github": ProviderRow("https://models.github.ai", "GITHUB_API_KEY", _family("github")),
    "huggingface": ProviderRow("https://router.huggingface.co", "HF_TOKEN", _family("huggingface")),
    "databricks": ProviderRow(key="DATABRICKS_API_KEY", protocol=_family("databricks")),
    "cloudflare": ProviderRow(key="CLOUDFLARE_API_KEY", protocol=_family("cloudflare")),
    "moonshot": ProviderRow("https://api.moonshot.ai", "MOONSHOT_API_KEY", _family("moonshot")),
    "zai": _ZAI,
    "dashscope": ProviderRow("https://dashscope-intl.aliyuncs.com", "DASHSCOPE_API_KEY", _family("dashscope")),
    "hyperbolic": ProviderRow("https://api.hyperbolic.xyz", "HYPERBOLIC_API_KEY"),
    "nebius": ProviderRow("https://api.studio.nebius.ai", "NEBIUS_API_KEY"),
    "novita": ProviderRow("https://api.novita.ai", "NOVITA_API_KEY", _rooted("/v3/openai")),
    "minimax": ProviderRow("https://api.minimax.io", "MINIMAX_API_KEY"),
    "voyage": ProviderRow("https://api.voyageai.com", "VOYAGE_API_KEY", passes=("rerank",)),
    "jina_ai": ProviderRow("https://api.jina.ai", "JINA_AI_API_KEY", passes=("rerank",)),
    "meta_llama": ProviderRow("https://api.llama.com", "LLAMA_API_KEY", _rooted("/compat/v1")),
    "volcengine": ProviderRow("https://ark.cn-beijing.volces.com", "VOLCENGINE_API_KEY", _rooted("/api/v3")),
    "vercel_ai_gateway": ProviderRow("https://ai-gateway.vercel.sh", "VERCEL_AI_GATEWAY_API_KEY"),
    "ollama": _OLLAMA,
    "hosted_vllm": _VLLM,
    "lm_studio": ProviderRow("http://localhost:1234", "LM_STUDIO_API_KEY", _family("lm-studio"), local=True),
    "llamafile": ProviderRow("http://localhost:8080", protocol=_family("llama.cpp"), local=True),
    "infinity": ProviderRow(protocol="openai", local=True, passes=("rerank",)),
    "xinference": ProviderRow(key="XINFERENCE_API_KEY", local=True),
    "litellm_proxy": ProviderRow(key="LITELLM_PROXY_API_KEY", passes=("audio", "images", "moderations", "rerank")),
    "docker_model_runner": ProviderRow("http://localhost:12434/engines/llama.cpp/v1", local=True),
}
"""Providers whose pools need nothing but these. Clouds, which need more, are the imports' own cases."""

OTHER_NAMES: Mapping[str, str] = {
    "text-completion-openai": "openai",
    "custom_openai": "openai",
    "openai_like": "openai",
    "anthropic_text": "anthropic",
    "text-completion-codestral": "codestral",
    "cohere_chat": "cohere",
    "ollama_chat": "ollama",
    "vllm": "hosted_vllm",
    "together-ai": "together_ai",
    "fireworks-ai": "fireworks_ai",
    "mistral-ai": "mistral",
    "perplexity-ai": "perplexity",
    "x-ai": "xai",
    "google": "gemini",
    "deepseek-ai": "deepseek",
    "jina": "jina_ai",
    "zhipu": "zai",
    "nvidia": "nvidia_nim",
}
"""Further names of the same providers, of LiteLLM and of Portkey."""

_BY_BEGINNING: tuple[tuple[str, str], ...] = (
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4-", "openai"),
    ("text-embedding-", "openai"),
    ("dall-e", "openai"),
    ("whisper-", "openai"),
    ("tts-", "openai"),
    ("omni-moderation", "openai"),
    ("claude-", "anthropic"),
    ("command-", "cohere"),
    ("gemini-", "vertex_ai"),
)


def provider_of(slug: str) -> ProviderRow | None:
    """A provider by its name at LiteLLM or Portkey; None for an unlisted one."""
    return PROVIDERS.get(OTHER_NAMES.get(slug, slug))


def guessed(model: str) -> str:
    """The provider of a model that is named without one; empty if the name does not show it."""
    return next((provider for start, provider in _BY_BEGINNING if model.startswith(start)), "")
