"""Replicas of bundled runtimes as actors of a Ray cluster.

runtime.py   one replica: its command line, and its address while a node runs it
cluster.py   the clusters of the configuration, and of each the driver's process, and the replicas that it places
driver.py    a program for an interpreter with Ray: places replicas, reports them, leases them
spreading.py nodes of their own for the replicas of a group
actor.py     the actor of a replica: runs the server on its node, restarts it, ends without a lease

The gateway never imports Ray. `driver.py`, `spreading.py` and `actor.py` use the standard library and Ray only, and run
elsewhere. Requests go directly to the replicas: neither the driver nor the cluster's head is on their way.
"""
