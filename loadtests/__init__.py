"""Benchmarks against real peers, and load scenarios. Not tests: nothing here asserts an absolute time.

``bench_gateway``  the whole comparison of gateways: `python -m loadtests.bench_gateway`
``bench_tensor``   the same of tensor servers, with ``tensors``; ``bench_llm``: of LLM servers, with ``llm``
``bench_pipelines``  ensembles of our tensor runtime beside those of a Triton, and pipelines beside KServe's router
``inference_graphs`` the graphs of KServe's router, and the same for our gateway
``networks``       a network namespace of a benchmark's own
``peers``          start other gateways and servers; ``headrace``: starts ours
``venvs``          one cached virtual environment for each peer; ``native``: compiles the C programs below
``servers``        a pinned child process that is ready when it answers, and is always stopped
``workloads``      the loads of gateways, and the figures of each
``replies``        checks that the gateway changes no response
``cpu``            CPU seconds from /proc: of a process tree, and of everything foreign to the run
``rounds``         interleaved rounds; those on a busy machine are dropped
``bench_shadows``  the latencies of clients with and without a shadow; ``bench_recording``: the cost of records
``arms``           the price of splits, rollouts and experiments over a plain route
``ratios``         medians, spreads, ours ÷ theirs; ``report``: the tables and the JSON line
``locustfile``     chat users for locust

``accuracy_llm``   the accuracy of weights and KV caches in few bits, on this repository's text

``simulations``    policies on simulated servers and virtual time
``soaks``          long runs that look for wrong responses and leaks

``mock_upstream.c`` answers without computing, ``load.c`` sends load; ``http1.h`` frames messages for both.
"""
