"""The differences of two answers under a configuration."""

from config.schema.config import CompareConfig
from config.schema.copies import JsonComparisonConfig
from policies.comparison.answers import AnswerContent
from policies.comparison.json_fields import differing_fields
from policies.comparison.tensors import tensor_differences
from policies.comparison.text import accepts
from policies.comparison.tools import tool_difference

Differences = dict[str, str]
"""By the part that differs (``status``, ``text``, ``tools``, ``bytes``, a tensor's name, a path): the difference."""


def differences(first: AnswerContent, second: AnswerContent, config: CompareConfig) -> Differences:
    """The differences of the shadow's answer from the primary's, `first`; empty if they agree."""
    if first.status // 100 != second.status // 100:
        return {"status": f"{first.status} and {second.status}"}
    if first.status >= 400:
        return {}  # the texts of errors are not answers
    if config.exact or "bytes" in (first.kind, second.kind):
        return {} if first.body == second.body else {"bytes": f"{len(first.body)} and {len(second.body)} bytes"}
    if first.kind != second.kind:
        return {"kind": f"{first.kind} and {second.kind}"}
    if first.kind == "tensors":
        return _of_tensors(first, second, config)
    if first.kind == "json":
        return differing_fields(first.value, second.value, config.json_)
    return _of_texts(first, second, config)


def undecided_texts(first: AnswerContent, second: AnswerContent, config: CompareConfig) -> tuple[tuple[str, str], ...]:
    """The texts that no test of the texts alone accepts, if a model has to decide them."""
    if not any(test.model for test in config.text) or len(first.texts) != len(second.texts):
        return ()
    pairs = zip(first.texts, second.texts, strict=True)
    return tuple((one, other) for one, other in pairs if not any(accepts(test, one, other) for test in config.text))


def _of_tensors(first: AnswerContent, second: AnswerContent, config: CompareConfig) -> Differences:
    """Tensors, or the JSON of a wire whose tensors have no datatype."""
    differing = tensor_differences(first.tensors, second.tensors, config.tensors)
    if first.value is not None or second.value is not None:
        tolerances = JsonComparisonConfig(rtol=config.tensors.rtol, atol=config.tensors.atol)
        differing |= differing_fields(first.value, second.value, tolerances)
    return differing


def _of_texts(first: AnswerContent, second: AnswerContent, config: CompareConfig) -> Differences:
    differing: Differences = {}
    if len(first.texts) != len(second.texts):
        differing["text"] = f"{len(first.texts)} and {len(second.texts)} choices"
    elif not all(
        any(accepts(test, one, other) for test in config.text)
        for one, other in zip(first.texts, second.texts, strict=True)
    ):
        differing["text"] = "no test accepts the texts"
    if config.tools and (difference := tool_difference(first.tools, second.tools)):
        differing["tools"] = difference
    return differing
