"""Text models on Triton: the names of their inputs, and their responses.

There is no common signature. TensorRT-LLM's models have `max_tokens` and `stop_words` (its ensemble and BLS), or
`sampling_param_max_tokens` and `sampling_param_stop` (its LLM API); vLLM's models have all such options in one JSON
text. The model's configuration lists its inputs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from adapters.errors import BackendError, Unsupported
from adapters.wire import decoding
from adapters.wire.text.prompt_request import LENGTHS, Options

WORDS: dict[str, tuple[str, ...]] = {
    "prompt": ("text_input",),
    "stream": ("streaming", "stream"),
    "options": ("sampling_parameters",),
    "max_tokens": ("sampling_param_max_tokens", "max_tokens"),
    "min_tokens": ("min_tokens", "min_length"),
    "temperature": ("sampling_param_temperature", "temperature"),
    "top_p": ("sampling_param_top_p", "top_p"),
    "top_k": ("sampling_param_top_k", "top_k"),
    "seed": ("sampling_param_seed", "seed", "random_seed"),
    "stop": ("sampling_param_stop", "stop_words"),
    "bad_words": ("bad_words",),
    "frequency_penalty": ("sampling_param_frequency_penalty", "frequency_penalty"),
    "presence_penalty": ("sampling_param_presence_penalty", "presence_penalty"),
    "repetition_penalty": ("repetition_penalty",),
    "length_penalty": ("length_penalty", "len_penalty"),
}
"""Names of the inputs for a request's fields; the first name that a model has applies."""
_WITHOUT_PROMPT = ("sampling_param_exclude_input_from_output", "exclude_input_in_output")
_REPORT_FLAGS = ("return_finish_reason", "return_num_input_tokens", "return_num_output_tokens")
_VLLM = LENGTHS | {
    "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "bad_words", "frequency_penalty",
    "presence_penalty", "repetition_penalty", "ignore_eos",
}  # fmt: skip
_REASONS = {"stop": "stop", "length": "length"}
_OURS = {"prompt", "stream", "options"}
_UNSIGNED = 2**64
_UNFINISHED = "\ufffd"


class _Input(msgspec.Struct):
    name: str
    data_type: str = "TYPE_STRING"
    optional: bool = False


class _Output(msgspec.Struct):
    name: str


class _Parameter(msgspec.Struct):
    string_value: str = ""


class _Policy(msgspec.Struct, frozen=True):
    decoupled: bool = False


class _Config(msgspec.Struct):
    input: list[_Input] = []
    output: list[_Output] = []
    model_transaction_policy: _Policy = _Policy()
    parameters: dict[str, _Parameter] = {}


_config = msgspec.json.Decoder(_Config).decode
_fields = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class TextResponse(NamedTuple):
    """One response. In a stream, its text is a piece or the whole text so far."""

    text: str
    reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None


class Signature:
    """A model's inputs and outputs, from its configuration. Raises `BackendError`.

    `names` are the model's own names of its inputs, by the request's fields. `streams` is configured: whether a
    response of a stream has a piece of the text or the whole text so far.
    """

    def __init__(self, config: bytes, names: Mapping[str, str], output: str, streams: str | None) -> None:
        try:
            read = _config(config)
        except decoding.MALFORMED_JSON:
            raise decoding.bad_response("The model's configuration cannot be decoded.") from None
        inputs = {one.name: one for one in read.input}
        requested = {**WORDS, **{field: (name,) for field, name in names.items()}}
        values = {field: next((name for name in requested[field] if name in inputs), None) for field in requested}
        self.words = {field: name for field, name in values.items() if name is not None}
        if "prompt" not in self.words or output not in {one.name for one in read.output}:
            text = requested["prompt"][0]
            raise Unsupported(f"The model does not generate text: it has no input {text}, or no output {output}.")
        self.supported = frozenset(self.words) - _OURS | {"echo"}
        if "max_tokens" in self.words:
            self.supported |= LENGTHS
        if "options" in self.words:
            self.supported |= _VLLM
        self._output = output
        self._flags = [name for name in (*_WITHOUT_PROMPT, *_REPORT_FLAGS) if name in inputs]
        self.repeats_prompt = not any(name in inputs for name in _WITHOUT_PROMPT)
        """Whether a response always begins with its prompt."""
        self.decoupled = read.model_transaction_policy.decoupled
        accumulates = read.parameters.get("accumulate_tokens", _Parameter()).string_value.lower() == "true"
        # Only TensorRT-LLM's LLM API sends the whole text so far by default.
        accumulates = accumulates or self.words.get("max_tokens") == "sampling_param_max_tokens"
        self.accumulates = accumulates if streams is None else streams == "whole"
        self.counts_pieces = "options" in self.words
        """Whether a response of a stream counts only its own tokens."""
        self._required = [one for one in read.input if not one.optional]

    def encode(self, prompt: str, options: Options, *, stream: bool, max_tokens: int) -> bytes:
        """Encode a body of the generate extension. `max_tokens` applies if the request has no limit."""
        words = self.words
        body: dict[str, Any] = {words["prompt"]: prompt, **dict.fromkeys(self._flags, True)}
        if "stream" in words:
            body[words["stream"]] = stream and self.decoupled
        values = _values(options, max_tokens)
        if "options" in words:
            body[words["options"]] = _encode(values).decode()
        else:
            if values.get("temperature") == 0:
                # Greedy decoding, by the option that all backends support.
                values = {**values, "top_k": 1} if "top_k" in words else values
                if "top_k" in words:
                    values.pop("temperature")
            elif "temperature" in values and not {"top_p", "top_k"} & values.keys():
                values["top_p"] = 1.0  # TensorRT-LLM does not sample without either option
            body |= {words[field]: value for field, value in values.items() if field in words}
        for one in self._required:
            if one.name not in body:
                body[one.name] = _nothing(one)
        return _encode(body)

    def decode(self, body: bytes) -> TextResponse:
        """Decode one response. Raises `BackendError`."""
        decoded = decoding.decode(_fields, body)
        text = _first(decoded.get(self._output))
        if not isinstance(text, str):
            raise decoding.bad_response(f"The upstream's response has no `{self._output}`.")
        reason = _first(decoded.get("finish_reason"))
        if reason in (None, "", "None"):
            reason = None
        elif reason in ("timeout", "cancelled"):
            raise BackendError("The upstream aborted its answer.")
        else:
            reason = _REASONS.get(str(reason), "stop")
        return TextResponse(
            text, reason, _count(decoded.get("num_input_tokens")), _count(decoded.get("num_output_tokens"))
        )


def new_text(text: str, before: str, *, last: bool = False) -> str:
    """Return the new end of a text so far. An incomplete character is held back unless the text is the `last`."""
    if not last:
        text = text.rstrip(_UNFINISHED)
    return text[len(before) :]


def _values(options: Options, max_tokens: int) -> dict[str, Any]:
    """Return the options that the request sets, by their field."""
    values: dict[str, Any] = {"max_tokens": max_tokens if options.length is None else options.length}
    for field in ("min_tokens", "temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty",
                  "repetition_penalty", "length_penalty", "ignore_eos", "bad_words"):  # fmt: skip
        if (value := getattr(options, field)) is not None:
            values[field] = value
    if options.top_k is not None and options.top_k > 0:
        values["top_k"] = options.top_k
    if options.seed is not None:
        values["seed"] = options.seed % _UNSIGNED
    if options.stops:
        values["stop"] = options.stops
    return values


def _nothing(one: _Input) -> str:
    """Return the value of a required input for which a request of text has no field."""
    if one.data_type != "TYPE_STRING":
        raise Unsupported(f"The model requires an input that a text request does not have: {one.name[:64]}.")
    return ""


def _first(value: Any) -> Any:
    """Return the first element of a list, or the value itself."""
    return value[0] if isinstance(value, list) and value else value


def _count(value: Any) -> int | None:
    value = _first(value)
    return value if isinstance(value, int) and 0 <= value < 2**31 else None
