"""One part of a node, such as a member of an ensemble: recorded like a step."""

from __future__ import annotations

from adapters.errors import InferenceError
from gateway.features.pipelines.scope import Output, PipelineNode, StepScope
from gateway.features.pipelines.values import Values


async def run_part(
    node: PipelineNode,
    scope: StepScope,
    name: str,
    *,
    inputs: Values | None = None,
    is_read: bool = False,
    is_live: bool = False,
) -> Output:
    """Run a node as a part of the node of `scope`. `is_read`: its values are needed. Raises `InferenceError`."""
    inner = scope.inner(inputs=inputs, name=name, is_live=is_live)
    return await run_recorded(node, inner, inner.path, is_read=is_read)


async def run_recorded(node: PipelineNode, scope: StepScope, name: str, *, is_read: bool = False) -> Output:
    """Run a node in a new scope, with a record of this name. Raises `InferenceError`."""
    trace, started = scope.call.trace.step(scope.pipeline, name, scope.call.step), scope.clock()
    scope.call = scope.call.of_step(trace, scope.call.deadline)
    try:
        output = await node.run(scope)
        if is_read:
            await output.read()
    except InferenceError as error:
        trace.outcome, trace.error = "failed", error.kind
        raise
    else:
        trace.outcome, output.trace = "ok", trace
        return output
    finally:
        trace.end(started, scope.clock())
