"""Benchmarks against real peers, and load scenarios. Not tests: nothing here asserts an absolute time.

``bench_gateway``  the whole comparison of gateways: `python -m loadtests.bench_gateway`
``bench_tensor``   the same of tensor servers, with ``tensors``; ``bench_llm``: of LLM servers, with ``llm``
``bench_pipelines``  ensembles of our tensor runtime beside those of a Triton, and pipelines beside KServe's router
``peers``          start other gateways and servers, if necessary in a network namespace of their own
``gateways``       the parts of the benchmarks of gateways: our gateway, workloads, checked replies
``figures``        rounds, CPU time, medians with spreads, reports
``venvs``          one cached virtual environment for each peer; ``native``: compiles the C programs below
``servers``        a pinned child process that is ready when it answers, and is always stopped
``bench_shadows``  the latencies of clients with and without a shadow; ``bench_recording``: the cost of records
``bench_bombs``    what other tenants wait while one sends pictures that cost much
``bench_bus``      messages of a broker beside HTTP and beside FastStream; ``bus``: its programs
``locustfile``     chat users for locust

``accuracy_llm``   the accuracy of weights and KV caches in few bits, on this repository's text

``simulations``    policies on simulated servers and virtual time
``soaks``          long runs that look for wrong responses and leaks

``mock_upstream.c`` answers without computing, ``load.c`` sends load; ``http1.h`` frames messages for both.
"""
