"""Bundled servers that compute, each in a separate process, without another server.

To the gateway they are servers like any other: it starts and watches them (`gateway/features/placement`) and speaks
to them over a wire, never by import.

llm/               an LLM engine with a paged KV cache and continuous batching, behind the OpenAI wire
tensor/            models of any framework, batched dynamically, behind the Open Inference Protocol
recogniser/        names and places in texts, behind the API of Presidio's analyzer
arguments.py       command-line options of all
access.py          the key that a runtime demands on a network
process.py         imports, signals, and the end of the parent process
histogram.py       durations counted by size, for metrics
spans.py           the spans of traced requests, for the gateway that fetches them
traced_handler.py  a handler whose traced requests have a span
wheels.py          files of models, fetched from the package index
"""
