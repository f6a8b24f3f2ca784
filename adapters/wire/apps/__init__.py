"""Tensors as the JSON of apps.

tensors.py         an object of named lists, or KServe's rows; checks tensors by a declaration
bentoml_schema.py  BentoML's `/schema.json`
bentoml_calls.py   tensors as the arguments of a BentoML method, and back
ray_serve.py       responses of Ray Serve's proxy and REST API
"""
