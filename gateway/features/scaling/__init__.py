"""The number of replicas of each runtime: measured, decided, applied.

actuator.py    starts and stops replicas; the demand and the actuator of one process
pool_scale.py  the state of one pool: its rules, its scaler, its starts, its KV caches, its last decision
devices.py     the models that share the memory of a device
external.py    a pool whose endpoints another autoscaler starts
serving.py     a deployment of Ray Serve, by its REST API
sleeping.py    a pool of servers that sleep while they are not needed, as vLLM does over HTTP
keda.py        KEDA's external scaler over gRPC
keda_listener.py  the listener for KEDA, which needs an extra
pattern.py     the hours in which models were used
autoscaler.py  measures, decides and acts, once a second
metrics.py     metrics of the replicas
"""
