"""Codecs: bytes ↔ types, without I/O. The fronts, the adapters and the runtimes share them.

openai/              OpenAI's API
responses/           OpenAI's Responses
anthropic/           Anthropic's Messages
gemini/              Google's Gemini
bedrock/             Amazon Bedrock
oip/                 the Open Inference Protocol over HTTP and gRPC
tfserving/           TensorFlow Serving, and KServe's v1
text/                prompts and generated text
apps/                tensors as the JSON of apps
media/               pictures and sound as tensors
protos/              the published gRPC messages
torchserve.py        TorchServe: errors, the management API, and gRPC messages
cloudevents.py       events of message brokers
native_chat.py       requests of other protocols that all other code treats as chats
body.py              a JSON object decoded one level deep
form.py              `multipart/form-data`, to read and replace the model's name
sse.py               server-sent events
compression.py       compressed bodies, with a bound on the result
decoding.py          decodes upstream responses and texts; any malformed response raises the same error
prompt_cache.py      marks the parts of prompts that a provider keeps in its cache
quota_headers.py     the quotas that providers report in headers, under every provider's names
reported_usage.py    the token counts that servers report, under every server's names
canonical.py         cache keys
field_names.py       errors with the field names of each front door
error_table.py       decodes the errors of servers, and classifies them by status and words
failure_text.py      the texts of servers, without secrets and addresses, and the errors that have them
internal_headers.py  headers from the gateway to its own LLM runtime
spans.py             spans from a bundled runtime to the gateway
signals.py           server-reported load, from metrics
ext_proc.py          Envoy's external processing, by the endpoint picker protocol
proto_fields.py      fields of a protobuf message by tag, without copies
proto_json.py        protobuf messages as JSON objects
webhook_signature.py  the signature of a message to a webhook
"""
