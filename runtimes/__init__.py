"""What computes: bundled servers, each a process of its own, that need no other server.

To the gateway they are servers like any other: it starts and watches them (`gateway/placement`) and speaks
to them over a wire, never by import.

llm/     an LLM engine with a paged KV cache and continuous batching, behind the OpenAI wire
tensor/  models of any framework, batched dynamically, behind the Open Inference Protocol
"""
