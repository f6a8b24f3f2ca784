"""The node `template`: makes a text, or the messages of a chat, from values."""

from functools import lru_cache
from typing import Any

from adapters.errors import CallerError, StepFailed
from adapters.wire.text.step_template import StepTemplate, TemplateFailed
from config.schema.pipelines.leaves import TemplateConfig
from gateway.features.pipelines.scope import REQUEST, FreeNode, Output, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value, ValueAbsent, plain


@lru_cache(1024)
def compiled(source: str) -> StepTemplate:
    """A compiled template, which snapshots share. Raises `TemplateInvalid`."""
    return StepTemplate(source)


class TemplateNode(FreeNode):
    """Renders its templates with the inputs of the node.

    Each message is rendered separately, so no value can add a message or change a role.
    """

    def __init__(self, config: TemplateConfig) -> None:
        self._text = None if config.text is None else compiled(config.text)
        self._messages = [(message.role, compiled(message.content)) for message in config.messages]
        templates = [template for _, template in self._messages] if self._text is None else [self._text]
        self._names = sorted(frozenset[str]().union(*(template.variables for template in templates)))

    async def run(self, scope: StepScope) -> Output:
        values: dict[str, Value] = {}
        absent: CallerError | None = None
        for name in self._names:
            try:
                value = plain(await scope.value(f"{REQUEST}.{name}"))
                if value is not None:  # a field without a value is absent
                    values[name] = value
            except UnusableValueError as error:
                raise scope.fail(error) from None
            except ValueAbsent as error:  # `default` in the template may provide a value
                absent = absent or error
        try:
            return Output(self._rendered(values))
        except TemplateFailed as error:
            message = f"The template of the step `{scope.path}` has no result: {error}."
            raise absent or StepFailed(message, step=scope.path) from None

    def _rendered(self, values: dict[str, Any]) -> dict[str, Value]:
        if self._text is not None:
            return {"text": self._text.render(values)}
        return {"messages": [{"role": role, "content": each.render(values)} for role, each in self._messages]}
