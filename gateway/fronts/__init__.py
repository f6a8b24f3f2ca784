"""The fronts: one codec for each API of clients, over one core.

listener.py          selects the front of a request to the HTTP listener by its path
paths.py             alternative paths of client libraries
inner.py             requests of the gateway's own tasks, such as messages of brokers
door.py              the base of all HTTP fronts: credentials, ids, headers, errors
rights.py            the table of all routes: who may call each one, and what it counts against
errors.py            an error as a response in the shape of each front (adapters/statuses.py: its status)
decoding.py          decodes a body; a route may drop a field that is not valid
rate_limits.py       headers that report the remaining limits
cors.py              cross-origin resource sharing
forwarded.py         the address of a client behind proxies
comments.py          comments in an event stream whose first event is late
openai.py            chat completions, completions, embeddings, models
responses.py         OpenAI's Responses
input_tokens.py      `/v1/responses/input_tokens`
pages.py             pages of lists
passed.py            OpenAI's operations that are forwarded unchanged: rerank, audio, images
anthropic.py         `/v1/messages`, `/v1/messages/count_tokens`
clouds/              the APIs of clouds: Gemini, Vertex AI, Bedrock
oip_http.py          the Open Inference Protocol over HTTP
predict_v1.py        KServe's v1 and TensorFlow Serving's REST API
apps.py              HTTP apps, and TorchServe's paths
tensors.py           the base of all fronts of tensors: names with versions, queries, inferences
metadata.py          a cache of the metadata of models of tensors
states.py            the readiness and the versions of a model
statistics.py        the statistics of models of tensors
grpc/                the fronts of the gRPC listener
"""
