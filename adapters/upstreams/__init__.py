"""Adapters of model servers: one folder for each family, and the modules that all families share.

openai/               OpenAI and compatible servers
anthropic/            Anthropic's Messages, its own and those of clouds: forwards messages, converts chats
gemini/               Gemini, at the Gemini API and at Vertex AI
bedrock/              Amazon Bedrock: chats by Converse, embeddings by InvokeModel
oip/                  the Open Inference Protocol over HTTP and gRPC
tfserving/            TensorFlow Serving, and KServe's v1
torchserve/           TorchServe over HTTP and gRPC
text/                 servers that generate text from a prompt
apps/                 HTTP apps, Ray Serve, BentoML
bus/                  workers behind a message broker
provided/             providers' batch APIs
dial.py               connections to a pool's servers: addresses, keys, timeouts, TLS, proxies
deferral.py           lines that wait for a batch of the provider, and the client that defers them
health.py             one health check over HTTP
readiness.py          the reason why a server reports a model as not ready
scrubbing.py          what no text of a pool's servers may show: credentials and addresses
failed_status.py      typed errors for HTTP statuses, and for the texts of tensor servers
grpc_answers.py       typed errors for gRPC statuses, and streams of messages
event_stream.py       a body, or a stream of server-sent events, forwarded unchanged
transcoded_stream.py  a stream of one wire as a stream of another
inference.py          completes requests whose bytes lack information: raw bodies, prompts, plain JSON values
inferred.py           the tensors of a response, and tensors as a response
declared_tensors.py   tensors that the configuration declares for servers that do not describe their own
"""
