"""Fields that clients of other servers send: obeyed under the names that this runtime has, or listed as ignored.

llama.cpp, Ollama, LM Studio, TGI, vLLM and OpenRouter have names of their own for common parameters, and send hints
that steer only their own servers. `unknown_fields` decides about a name that is in neither table.
"""

from collections.abc import Mapping
from typing import Any

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields

_ALIASES = {
    "repeat_penalty": "repetition_penalty", "max_completion_tokens": "max_tokens", "n_predict": "max_tokens",
    "max_output_tokens": "max_tokens", "num_predict": "max_tokens", "max_new_tokens": "max_tokens",
    "random_seed": "seed", "grammar": "guided_grammar", "json_schema": "guided_json", "think": "enable_thinking",
    "stop_sequences": "stop", "regex": "guided_regex", "ebnf": "guided_grammar",
}  # fmt: skip
_OPTIONS = frozenset((
    "temperature", "top_k", "top_p", "min_p", "seed", "stop", "presence_penalty", "frequency_penalty", *_ALIASES,
))  # fmt: skip
"""Fields that Ollama's clients send within `options`."""
HINTS = frozenset((
    # llama.cpp
    "cache_prompt", "dry_allowed_length", "dry_base", "dry_multiplier", "dry_penalty_last_n", "dry_sequence_breakers",
    "dynatemp_exponent", "dynatemp_range", "id_slot", "mirostat", "mirostat_eta", "mirostat_tau", "n_cache_reuse",
    "n_discard", "n_indent", "n_keep", "n_probs", "min_keep", "parse_tool_calls", "penalize_nl", "post_sampling_probs",
    "reasoning_format", "repeat_last_n", "response_fields", "return_progress", "return_tokens", "samplers", "slot_id",
    "t_max_predict_ms", "t_max_prompt_ms", "tfs_z", "thinking_forced_open", "timings_per_token", "top_n_sigma",
    "typical_p", "xtc_probability", "xtc_threshold",
    # Ollama and LM Studio
    "draft_model", "keep_alive", "logits_all", "low_vram", "main_gpu", "num_batch", "num_ctx", "num_gpu", "num_keep",
    "num_thread", "numa", "raw", "ttl", "use_mlock", "use_mmap", "vocab_only",
    # TGI
    "decoder_input_details", "details", "do_sample", "return_full_text", "top_n_tokens", "watermark",
    # vLLM and SGLang
    "detokenize", "early_stopping", "kv_transfer_params", "length_penalty",
    "mm_processor_kwargs", "request_id", "rid", "separate_reasoning", "spaces_between_special_tokens",
    "stream_reasoning", "use_beam_search", "vllm_xargs",
    # OpenRouter, Mistral, LiteLLM
    "models", "plugins", "provider", "route", "session_id", "transforms", "usage",
))  # fmt: skip
"""Fields that other servers have and that no answer here depends on."""
_REASONING = {
    "effort": "reasoning_effort", "enabled": "enable_thinking", "max_tokens": "thinking_token_budget",
    "exclude": "include_reasoning",
}  # fmt: skip
"""Fields of OpenRouter's `reasoning`."""
_LIMITS = ("max_tokens", "max_completion_tokens")


def renamed(fields: dict[str, Any], own: frozenset[str], hints: IgnoredFields) -> dict[str, Any]:
    """The `fields` of a request under this runtime's names. Those without effect are ignored. Raises CallerError on a
    strict route, and for `options` that are no object."""
    result = _without_aliases(fields, own, hints)
    options = result.pop("options", None)
    if isinstance(options, dict):
        for name in sorted(options.keys() - _OPTIONS):
            hints.ignore(name)
        chosen = {name: value for name, value in options.items() if name in _OPTIONS}
        for name, value in _without_aliases(chosen, own, hints).items():
            _fill(result, name, value)
    elif options is not None:
        raise CallerError("`options` must be an object.", param="options")
    for name in sorted((HINTS & result.keys()) - own):
        if result.pop(name) is not None:
            hints.ignore(name)
    for name in _LIMITS:
        if type(value := result.get(name)) is int and value == -1:
            result[name] = None  # other servers' word for no limit
    if isinstance(reasoning := result.get("reasoning"), dict) and "reasoning_effort" in own:
        del result["reasoning"]
        for name, value in reasoning.items():
            if name not in _REASONING:
                hints.ignore(f"reasoning.{name}")
            else:
                inverted = name == "exclude" and isinstance(value, bool)
                _fill(result, _REASONING[name], not value if inverted else value)
    return _formatted(result)


def _without_aliases(fields: dict[str, Any], own: frozenset[str], hints: IgnoredFields) -> dict[str, Any]:
    """The first alias in the table's order applies, if the field itself is left out or null."""
    result = dict(fields)
    for name, target in _ALIASES.items():
        if name in own or name not in result:
            continue
        value = result.pop(name)
        if target in own:
            _fill(result, target, value)
        else:
            hints.ignore(name)
    return result


def _fill(fields: dict[str, Any], name: str, value: Any) -> None:
    """Set a field that is left out or null."""
    if value is not None and fields.get(name) is None:
        fields[name] = value


def _formatted(fields: dict[str, Any]) -> dict[str, Any]:
    """The form of the answer as OpenAI's `response_format`: of Ollama, llama.cpp, TGI and others."""
    form = fields.pop("format", None)
    if form == "json" or isinstance(form, dict):
        schema = {"schema": form} if isinstance(form, dict) else {}
        fields.setdefault("response_format", {"type": "json_object", **schema})
    elif form not in (None, ""):
        fields["format"] = form
    given = fields.get("response_format")
    if not isinstance(given, Mapping) or "json_schema" in given:
        return fields
    value = given.get("schema", given.get("value"))
    if given.get("type") in ("json", "json_object", "json_schema") and isinstance(value, dict):
        named = {"type": "json_schema", "json_schema": {"name": "schema", "schema": value}}
        return fields | {"response_format": named}
    if given.get("type") == "regex" and isinstance(value, str):
        del fields["response_format"]
        fields.setdefault("guided_regex", value)
    return fields
