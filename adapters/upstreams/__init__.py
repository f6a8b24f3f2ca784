"""Adapters of model servers: one folder for each family, and the modules that all families share.

openai/               OpenAI and compatible servers
anthropic/            Anthropic's Messages
oip/                  the Open Inference Protocol over HTTP and gRPC
tfserving/            TensorFlow Serving, and KServe's v1
torchserve/           TorchServe over HTTP and gRPC
text/                 servers that generate text from a prompt
apps/                 HTTP apps, Ray Serve, BentoML
bus/                  workers behind a message broker
provided/             lines of batches at a provider, and providers' batch APIs
dial.py               connections to a pool's servers: addresses, keys, timeouts
egress.py             the proxy to a server
tls.py                TLS to endpoints
health.py             one health check over HTTP
readiness.py          the reason why a server reports a model as not ready
scrubbing.py          what no text of a pool's servers may show: credentials and addresses
failed_status.py      typed errors for HTTP statuses
grpc_refusals.py      typed errors for gRPC statuses
body_stream.py        a body, forwarded unchanged as it arrives
event_stream.py       a stream of server-sent events, forwarded unchanged
grpc_stream.py        a stream of gRPC messages
transcoded_stream.py  a stream of one wire as a stream of another
inferred.py           the tensors of a response, and tensors as a response
declared_tensors.py   tensors that the configuration declares for servers that do not describe their own
"""
