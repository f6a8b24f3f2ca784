"""A model that repeats its prompt's last line word by word, with the inputs of servers of text under their various
names. A word is a token. The model fails at the word FAIL, and returns a stop text where its namesake does.
"""

import json
import re
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

WORDS = re.compile(r"\s*\S+")


class TritonPythonModel:
    """The parameter `style` of the configuration selects the signature."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.style = config["parameters"]["style"]["string_value"]
        self.decoupled = config.get("model_transaction_policy", {}).get("decoupled", False)
        self.batched = config["max_batch_size"] > 0

    def execute(self, requests: list[Any]) -> list[Any] | None:
        if not self.decoupled:
            return [self.answer(request) for request in requests]
        for request in requests:
            sender = request.get_response_sender()
            for response in self.stream(request):
                if request.is_cancelled():
                    break
                sender.send(response)
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def answer(self, request: Any) -> Any:
        return list(self.stream(request))[-1]

    def stream(self, request: Any) -> Any:
        """Responses: one with all, or one a word."""
        options = self.options_of(request)
        try:
            yield from self.pieces(options)
        except Exception as error:
            yield pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))

    def pieces(self, options: dict[str, Any]) -> Any:
        prompt = options["text_input"]
        words, reason = self.continuation(prompt, options)
        streams = options["stream"]
        if streams and not self.decoupled:
            raise ValueError("Streaming is only supported in decoupled mode.")
        text = "" if options["exclude"] or streams else prompt
        if not streams:
            yield self.response(options, text + "".join(words), reason, len(words))
            return
        for index, word in enumerate(words, 1):
            if word.strip() == "FAIL":
                raise ValueError("CUDA error in /opt/model")
            text += word
            last = reason if index == len(words) else None
            yield self.response(options, text if self.style == "llm_api" else word, last, 1)

    def continuation(self, prompt: str, options: dict[str, Any]) -> tuple[list[str], str]:
        lines = [line.strip() for line in re.sub(r"<\|[a-z_]+\|>(user|assistant)?", "\n", prompt).split("\n")]
        words = WORDS.findall([line for line in lines if line][-1])
        if not options["stream"] and "FAIL" in prompt:
            raise ValueError("CUDA error in /opt/model")
        spoken: list[str] = []
        for word in words:
            if len(spoken) == options["max_tokens"]:
                return spoken, "length"
            spoken.append(word)
            for stop in options["stops"]:
                if stop and stop in "".join(spoken):
                    if self.style != "bls":  # which includes the stop text
                        spoken[-1] = word[: word.find(stop)] if stop in word else word
                    return spoken, "stop"
        return spoken, "length" if len(spoken) == options["max_tokens"] else "stop"

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    def options_of(self, request: Any) -> dict[str, Any]:
        given = {tensor.name(): tensor.as_numpy().reshape(-1).tolist() for tensor in request.inputs()}
        given = {name: [v.decode() if isinstance(v, bytes) else v for v in values] for name, values in given.items()}
        one = {name: values[0] for name, values in given.items() if values}
        common = {"text_input": one["text_input"], "finish": one.get("return_finish_reason", False), "given": one}
        if self.style == "llm_api":
            return {
                **common,
                "stream": one.get("streaming", False),
                "max_tokens": one.get("sampling_param_max_tokens", 32),
                "stops": given.get("sampling_param_stop", []),
                "exclude": one.get("sampling_param_exclude_input_from_output", False),
            }
        if self.style == "vllm":
            options = json.loads(one.get("sampling_parameters", "{}"))
            return {
                **common,
                "stream": one.get("stream", False),
                "max_tokens": options.get("max_tokens", 16),
                "stops": options.get("stop", []),
                "exclude": one.get("exclude_input_in_output", one.get("stream", False)),
            }
        return {
            **common,
            "stream": one.get("stream", False),
            "max_tokens": one["max_tokens"],
            "stops": given["stop_words"],
            "exclude": one.get("exclude_input_in_output", False),
        }

    def response(self, options: dict[str, Any], text: str, reason: str | None, tokens: int) -> Any:
        outputs = {"text_output": self.texts(text)}
        if options["finish"]:
            outputs["finish_reason"] = self.texts(str(reason))
        if options["given"].get("return_num_input_tokens"):
            outputs["num_input_tokens"] = np.asarray(len(WORDS.findall(options["text_input"])), dtype=np.uint32)
        if options["given"].get("return_num_output_tokens"):
            outputs["num_output_tokens"] = np.asarray([tokens], dtype=np.uint32)
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in outputs.items()])

    def texts(self, text: str) -> Any:
        array = np.asarray([text.encode()], dtype=np.object_)
        return array.reshape(1, 1) if self.batched else array
