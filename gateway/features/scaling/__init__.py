"""The number of replicas of each runtime: measured, decided, applied.

demand.py      the demand for each pool of a process
rules.py       the rules of a pool, from the configuration
actuator.py    starts and stops replicas; the actuator of a gateway of one process
pool_scale.py  the state of one pool: its scaler, its starts, its last decision
devices.py     the models that share the memory of a device
external.py    a pool whose endpoints another autoscaler starts
serving.py     a deployment of Ray Serve
serve_orders.py  Ray Serve's REST API
sleeping.py    a pool of servers that sleep while they are not needed
sleep_orders.py  vLLM's sleep over HTTP
keda.py        KEDA's external scaler over gRPC
keda_listener.py  the listener for KEDA
pattern.py     the hours in which models were used
occupancy.py   reads the use of KV caches from replicas
autoscaler.py  measures, decides and acts, once a second
metrics.py     metrics of the replicas
"""
