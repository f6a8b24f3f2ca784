"""Bodies of JSON as values of steps, and values as bodies: functions of bytes, which a worker process can run.

large_bodies.py  answers and fields of OpenAI's APIs
json_values.py   fields of KServe's v1, for models without declared tensors
"""
