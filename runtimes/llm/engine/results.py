"""What a step's results change in a sequence, and the outputs that they give."""

from collections import abc
from dataclasses import replace
from typing import TYPE_CHECKING

from adapters.errors import BackendError, InferenceError
from runtimes.llm.sequence import FinishReason, Sampled, Sequence, TokenOutput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def appended(sequence: Sequence, token_id: int) -> InferenceError | None:
    """Append a token; the error if the sequence's constraint fails, which ends this sequence only."""
    try:
        sequence.append(token_id)
    except InferenceError as error:
        return error
    except Exception as error:  # a constraint comes from a request and may fail in any way
        failure = BackendError(f"the answer's constraint has failed: {error}")
        failure.__cause__ = error
        return failure
    return None


def finish_reason(sequence: Sequence, max_model_len: int) -> FinishReason | None:
    """The finish reason of a sequence that ends with its newest token; None if it continues."""
    if sequence.token_ids[-1] in sequence.stop_token_ids:
        return "stop"
    if sequence.num_generated >= sequence.params.max_tokens or len(sequence) >= max_model_len:
        return "length"
    return None


def token_output(sequence: Sequence, sampled: Sampled, reason: FinishReason | None) -> TokenOutput:
    """The newest token of a sequence. The first one carries the log-probabilities of the prompt."""
    prompt, sequence.prompt_logprobs = sequence.prompt_logprobs, []
    return TokenOutput(
        sampled.token_id, reason, sequence.num_cached, logprobs=sampled.logprobs, prompt_logprobs=tuple(prompt),
        num_predicted=sequence.num_predicted, num_confirmed=sequence.num_confirmed,
    )  # fmt: skip


def joined_outputs(sequence: Sequence, outputs: abc.Sequence[TokenOutput]) -> TokenOutput:
    """The outputs of one step as one, with the counts of the prediction after the step."""
    if len(outputs) == 1 and not sequence.num_predicted:
        return outputs[0]
    predicted, confirmed = sequence.num_predicted, sequence.num_confirmed
    return replace(outputs[-1], before=tuple(outputs[:-1]), num_predicted=predicted, num_confirmed=confirmed)


def add_pooled(sequence: Sequence, states: "NDArray[np.float32] | None") -> None:
    """Add the sum of a chunk's hidden states to the vector of its sequence."""
    if states is not None:
        sequence.pooled = states if sequence.pooled is None else sequence.pooled + states


def pooled_output(sequence: Sequence) -> TokenOutput:
    """The vector of a sequence whose last chunk was computed."""
    if sequence.pooling == "mean" and sequence.pooled is not None:
        sequence.pooled /= len(sequence)
    return TokenOutput(-1, "stop", sequence.num_cached, sequence.pooled)


def accepted(proposed: abc.Sequence[int], sampled: abc.Sequence[Sampled]) -> Sampled:
    """The result of a chunk whose positions gave `sampled`: the first token that is not the one proposed in its place,
    and those before it. The tokens behind it were sampled after a token that is not in the text."""
    right = 0
    while right + 1 < len(sampled) and sampled[right].error is None and sampled[right].token_id == proposed[right]:
        right += 1
    return sampled[right]._replace(before=tuple(sampled[:right])) if right else sampled[0]
