"""Configurations of other servers, as ours.

inference_graph.py  KServe's InferenceGraph: reads and checks it
pipeline.py         an InferenceGraph → pools, models and a pipeline, with the differences
price_list.py       LiteLLM's list of prices, as prices of models
model_list.py       the same list as a catalogue
litellm/            the configuration of LiteLLM's proxy
portkey.py          Portkey's configs
survey.py           a foreign document in parts, with an account of its values
hosting.py          a model at a provider, and the pool that reaches it
providers.py        the providers by name, as data
draft.py            the configuration that an import writes
"""
