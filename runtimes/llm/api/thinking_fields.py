"""The thinking options of a chat: the fields of several APIs, as variables of the template and rules of the answer.

`chat_template_kwargs`, `enable_thinking`      variables of the template: vLLM's, SGLang's and Qwen's
`reasoning_effort`                             OpenAI's; also a variable of the template
`thinking`                                     Anthropic's, which DeepSeek and GLM have too
`thinking_token_budget`, `thinking_budget`, `max_thinking_tokens`    vLLM's, Qwen's and others' bound of a thought
`include_reasoning`                            vLLM's: false omits thoughts from the answer
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from adapters.errors import CallerError
from runtimes.llm.api.sampling_fields import Count

MAX_VARIABLES = 64
RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"})
FIELDS = (
    "enable_thinking", "reasoning_effort", "thinking", "thinking_token_budget", "thinking_budget",
    "max_thinking_tokens", "include_reasoning",
)  # fmt: skip
"""Fields without effect on a model that does not think."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Variables = Annotated[dict[str, Any], Meta(max_length=MAX_VARIABLES)]


class Thinking(msgspec.Struct, forbid_unknown_fields=True):
    """`display` is for Anthropic's own summaries of thoughts; here thoughts are never summarized."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Count | None = None
    display: Literal["summarized", "omitted"] | None = None


class ThinkingSettings(msgspec.Struct, frozen=True):
    """`budget` is the maximum of tokens of a thought."""

    variables: dict[str, Any] = {}
    budget: int | None = None
    is_shown: bool = True


def check_variables(variables: dict[str, Any] | None) -> None:
    """Raises `CallerError` for a variable that has its own field in the request."""
    if taken := sorted(RESERVED & (variables or {}).keys()):
        message = f"`chat_template_kwargs` has {taken[0]}, which is no variable of its own: use the request's fields."
        raise CallerError(message, param="chat_template_kwargs")


def variables_of(enabled: bool | None, effort: str | None, given: dict[str, Any] | None) -> dict[str, Any]:
    """The variables of the template; explicit ones take precedence."""
    check_variables(given)
    variables: dict[str, Any] = {} if enabled is None else {"enable_thinking": enabled, "thinking": enabled}
    if effort is not None:
        variables["reasoning_effort"] = effort
    return variables | (given or {})
