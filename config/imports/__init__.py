"""Configurations of other servers, as ours.

inference_graph.py  KServe's InferenceGraph: reads and checks it
pipeline.py         an InferenceGraph → pools, models and a pipeline, with the differences
price_list.py       LiteLLM's list of prices, as prices of models
"""
