"""The features: one folder each, with its fronts, its tasks, its metrics and its commands.

pipelines/    models that are graphs of other models
guards/       words, patterns, keys and addresses that prompts and answers must not contain
embeddings/   tokenizes texts and pools vectors for models that compute embeddings
batches/      files and batches: requests that may wait
bus/          messages of brokers as requests
stored/       OpenAI's stored responses and conversations
explain/      why a request is routed as it is, and the tests of a policy
recording/    recorded traffic: a sample of requests, redacted and encrypted
payloads/     requests and answers of a model as CloudEvents, for other tools
replay/       recorded traffic under another policy
rollouts/     gradual moves of requests from one arm of a route to another
experiments/  values that clients report, and the views of experiments
shadow/       copies of requests to another target, and the comparison of the answers
placement/    bundled runtimes as supervised child processes
scaling/      the number of replicas of each runtime
picker/       the endpoint picker of Envoy-based gateways
quota/        the bytes that each tenant stores, counted and bounded by the state database
journal/      the ended requests of a host, each stored once
usage/        what tenants have used and spent, in the state database
requests/     a record of each request, by day, and the search of requests
live/         what all replicas do now, and did in the last hours, for people who watch
alerts/       soft budgets: signed messages to webhooks

No part below knows of them: what composes a gateway hands them to the request's path, the doors and the admin API.
"""
