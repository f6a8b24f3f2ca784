"""Requests with extreme field values, for every API of the runtime: valid ones, and those that must be refused."""

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

NUMBERS = (
    "0", "-0.0", "1", "-1", "2", "5e-324", "1e-310", "1e-300", "1e-46", "1.4e-45", "1e-40", "1.17549435e-38", "1e-37",
    "1e-20", "1e-8", "1e-6", "9.999e-6", "1e-5", "0.01", "0.0099", "0.5", "0.9999999999999999", "1.0000000000000002",
    "3.4028235e38", "3.5e38", "1e308", "1e309", "1e-400", "-1e308", "100", "100.00000001", "20", "21", "2147483647",
    "2147483648", "4294967295", "4294967296", "9007199254740993", "9223372036854775807", "9223372036854775808",
    "18446744073709551615", "18446744073709551616", "-9223372036854775808", "-9223372036854775809", "1" * 40,
    "1" * 400, "1" * 4301, "-" + "9" * 5000,
)  # fmt: skip
OTHERS = (
    "null", "true", "false", "NaN", "Infinity", "-Infinity", '"nan"', '"inf"', '"1e-46"', '""', '"a"', "[]", "{}",
    "[null]", "[[]]", '{"a":1}', '"\\u0000"', '"\\ud83d\\ude00"', '"\\ud800"', "[1,2,3]", "[0.5]", "[-1]",
    "[" * 2000 + "]" * 2000,
)  # fmt: skip


def biases(number: str) -> str:
    return f'{{"65":{number}}}'


_SAMPLING = (
    "n", "max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "seed", "priority", "prompt_logprobs",
)  # fmt: skip
_SHARED = (
    "stop", "stop_token_ids", "include_stop_str_in_output", "ignore_eos", "cache_salt", "return_token_ids",
    "continue_token_ids", "stream", "stream_options", "response_format", "structured_outputs", "logit_bias", "user",
    "metadata", "best_of", "echo", "suffix", "bad_words", "skip_special_tokens", "guided_json", "guided_regex",
    "guided_choice", "guided_grammar", "guided_whitespace_pattern", "guided_decoding_backend", "model",
)  # fmt: skip


class Api(NamedTuple):
    """A path, fields that make a valid request, and its other fields: numbers first."""

    path: str
    base: dict[str, str]
    numbers: tuple[str, ...]
    others: tuple[str, ...]

    def body(self, changes: dict[str, str]) -> bytes:
        fields = self.base | changes
        return ("{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in fields.items()) + "}").encode()


_MESSAGES = '[{"role":"user","content":"aab"}]'
_TOOLS = '[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]'
APIS = (
    Api(
        "/v1/chat/completions",
        {"model": '"parrot"', "messages": _MESSAGES, "max_tokens": "3"},
        (*_SAMPLING, "max_completion_tokens", "top_logprobs"),
        (
            *_SHARED, "messages", "logprobs", "tools", "tool_choice", "parallel_tool_calls", "continue_final_message",
            "add_generation_prompt", "reasoning_effort", "verbosity",
        ),
    ),
    Api(
        "/v1/completions",
        {"model": '"parrot"', "prompt": '"aab"', "max_tokens": "3"},
        (*_SAMPLING, "logprobs"),
        (*_SHARED, "prompt"),
    ),
    Api(
        "/v1/responses",
        {"model": '"parrot"', "input": '"aab"', "max_output_tokens": "16"},
        ("max_output_tokens", "temperature", "top_p", "top_logprobs", "max_tool_calls"),
        ("input", "instructions", "stream", "text", "tools", "tool_choice", "include", "reasoning", "store"),
    ),
    Api("/v1/embeddings", {"model": '"parrot"', "input": '"aab"'}, ("dimensions", "truncate_prompt_tokens"),
        ("input", "encoding_format", "user")),
    Api("/tokenize", {"model": '"parrot"', "prompt": '"aab"'}, ("return_token_strs",),
        ("prompt", "messages", "tools", "add_special_tokens", "add_generation_prompt", "continue_final_message")),
    Api("/detokenize", {"model": '"parrot"', "tokens": "[65]"}, (), ("tokens",)),
)  # fmt: skip

# Values that are valid, so that combinations get past the checks and reach the engine.
PLAUSIBLE = {
    "n": ("1", "2", "3"),
    "temperature": ("0", "5e-324", "1e-46", "1e-300", "9e-6", "1e-5", "1", "2"),
    "top_p": ("5e-324", "1e-46", "1e-8", "0.5", "1"),
    "top_k": ("-1", "0", "1", "2147483647"),
    "min_p": ("0", "5e-324", "1e-46", "1"),
    "presence_penalty": ("-2", "-1e-320", "2"),
    "frequency_penalty": ("-2", "1e-320", "2"),
    "repetition_penalty": ("0.01", "1e-320", "1", "100"),
    "min_tokens": ("0", "1", "3"),
    "seed": ("0", "-9223372036854775808", "9223372036854775807"),
    "logit_bias": ('{"65":-100,"66":100}', '{"65":1e-320}', '{"257":100}', "{}"),
    "stop": ('"a"', '[""]', '["a","b","ab"]', "[]", '"\\ud83d\\ude00"'),
    "stop_token_ids": ("[65]", "[257]", "[]", "[999999]"),
    "ignore_eos": ("true", "false"),
    "include_stop_str_in_output": ("true",),
    "stream": ("true", "false"),
    "logprobs": ("true", "1", "0", "20"),
    "top_logprobs": ("0", "1", "20"),
    "echo": ("true",),
    "best_of": ("1", "4"),
    "prompt": ('"aab"', '["a","b"]', "[65,66]", "[[65],[66]]", '""', "[0]", '"\\ud83d"'),
    "messages": (
        _MESSAGES,
        '[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]',
        '[{"role":"user","content":"a"},{"role":"assistant","tool_calls":'
        '[{"function":{"name":"f","arguments":"{}"},"id":"1"}]}]',
        '[{"role":"assistant","content":"b"}]',
        '[{"role":"user","content":"a"},{"role":"assistant","tool_calls":[{"function":{"name":"f"},"id":"1"}]},'
        '{"role":"tool","tool_call_id":"1","content":"x"}]',
        '[{"role":"assistant","content":[{"type":"text","text":""}]}]',
    ),
    "tools": (_TOOLS, "[]"),
    "tool_choice": ('"auto"', '"required"', '"none"', '{"type":"function","function":{"name":"f"}}'),
    "parallel_tool_calls": ("true", "false"),
    "continue_final_message": ("true", "false"),
    "add_generation_prompt": ("true", "false"),
    "response_format": (
        '{"type":"json_object"}',
        '{"type":"text"}',
        '{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"integer"}}}',
    ),
    "structured_outputs": ('{"regex":"a+"}', '{"choice":["a","b"]}', '{"json":{"type":"null"}}', '{"regex":"("}'),
    "continue_token_ids": ("[]", "[65]", "[257]", "[-1]", "[99999999999]"),
    "return_token_ids": ("true",),
    "stream_options": ('{"include_usage":true}',),
    "max_tokens": ("0", "1", "3"),
    "bad_words": ('["a"]', '["a","b","ab","aab"]', "[]", '[""]', '["\\ud83d\\ude00"]', '["<|im_end|>"]'),
    "skip_special_tokens": ("true", "false"),
    "prompt_logprobs": ("0", "1", "20"),
    "guided_json": ('{"type":"null"}', '{"type":"integer"}', '{"const":9007199254740993}', '{"maximum":1e400}'),
    "guided_regex": ('"a+"', '"[\\\\d]"', '"("'),
    "guided_choice": ('["a","b"]', '["a"]'),
    "guided_grammar": ('"start: \\"a\\""', '"root ::= \\"a\\""'),
    "guided_whitespace_pattern": ('" "', '"("'),
    "guided_decoding_backend": ('"xgrammar"',),
    "model": ('"parrot"', "null"),
}

# Fields whose meaning depends on each other.
RELATED = frozenset(
    {
        "add_generation_prompt", "continue_final_message", "continue_token_ids", "echo", "logprobs", "messages", "n",
        "prompt", "response_format", "stream", "structured_outputs", "tool_choice", "tools",
    }
)  # fmt: skip


def single_values(api: Api) -> Iterator[bytes]:
    """Every field with every extreme value, by itself."""
    for name in api.numbers:
        for value in (*NUMBERS, *OTHERS):
            yield api.body({name: value})
    for name in (*api.others, *api.base):
        for value in OTHERS:
            yield api.body({name: value})
    if "logit_bias" in api.others:
        for value in NUMBERS:
            yield api.body({"logit_bias": biases(value)})
            yield api.body({"logit_bias": f'{{"{value}":1}}'})


def combinations(api: Api, count: int, seed: int) -> Iterator[bytes]:
    """Several fields at once, most of them valid."""
    chance = random.Random(seed)
    names = [*api.numbers, *api.others]
    related = [name for name in names if name in RELATED]
    for _ in range(count):
        chosen = related if related and chance.random() < 0.5 else names
        changes = {}
        for name in chance.sample(chosen, min(len(chosen), chance.randint(2, 7))):
            plausible = PLAUSIBLE.get(name)
            changes[name] = chance.choice(plausible if plausible and chance.random() < 0.95 else (*NUMBERS, *OTHERS))
        yield api.body(changes)
