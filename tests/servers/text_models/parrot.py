"""A model that repeats its prompt's last line word by word, with the inputs that servers of text have, whatever they
are called. A word is a token; it fails at the word FAIL, and tells a stop text where its namesake does.
"""

import json
import re
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

WORDS = re.compile(r"\s*\S+")


class TritonPythonModel:
    """`style` of the configuration's parameters says whose signature it has."""

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
        asked = self.asked(request)
        try:
            yield from self.pieces(asked)
        except Exception as error:
            yield pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))

    def pieces(self, asked: dict[str, Any]) -> Any:
        prompt = asked["text_input"]
        said, reason = self.said(prompt, asked)
        streams = asked["stream"]
        if streams and not self.decoupled:
            raise ValueError("Streaming is only supported in decoupled mode.")
        text = "" if asked["exclude"] or streams else prompt
        if not streams:
            yield self.response(asked, text + "".join(said), reason, len(said))
            return
        for index, word in enumerate(said, 1):
            if word.strip() == "FAIL":
                raise ValueError("CUDA error in /opt/model")
            text += word
            last = reason if index == len(said) else None
            yield self.response(asked, text if self.style == "llm_api" else word, last, 1)

    def said(self, prompt: str, asked: dict[str, Any]) -> tuple[list[str], str]:
        lines = [line.strip() for line in re.sub(r"<\|[a-z_]+\|>(user|assistant)?", "\n", prompt).split("\n")]
        words = WORDS.findall([line for line in lines if line][-1])
        if not asked["stream"] and "FAIL" in prompt:
            raise ValueError("CUDA error in /opt/model")
        said: list[str] = []
        for word in words:
            if len(said) == asked["max_tokens"]:
                return said, "length"
            said.append(word)
            for stop in asked["stops"]:
                if stop and stop in "".join(said):
                    if self.style != "bls":  # which tells it
                        said[-1] = word[: word.find(stop)] if stop in word else word
                    return said, "stop"
        return said, "length" if len(said) == asked["max_tokens"] else "stop"

    # ── tensors ───────────────────────────────────────────────────────────────────────────────────────

    def asked(self, request: Any) -> dict[str, Any]:
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

    def response(self, asked: dict[str, Any], text: str, reason: str | None, tokens: int) -> Any:
        told = {"text_output": self.texts(text)}
        if asked["finish"]:
            told["finish_reason"] = self.texts(str(reason))
        if asked["given"].get("return_num_input_tokens"):
            told["num_input_tokens"] = np.asarray(len(WORDS.findall(asked["text_input"])), dtype=np.uint32)
        if asked["given"].get("return_num_output_tokens"):
            told["num_output_tokens"] = np.asarray([tokens], dtype=np.uint32)
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, array) for name, array in told.items()])

    def texts(self, text: str) -> Any:
        array = np.asarray([text.encode()], dtype=np.object_)
        return array.reshape(1, 1) if self.batched else array
