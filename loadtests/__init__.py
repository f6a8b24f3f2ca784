"""Benchmarks against real peers, and load scenarios. Not tests: nothing here asserts an absolute time.

``bench_gateway``  the whole comparison of gateways: `python -m loadtests.bench_gateway`
``bench_tensor``   the same of tensor servers, with ``tensors``; ``bench_llm``: of LLM servers, with ``llm``
``peers``          how nginx, sglang-router and LiteLLM are started; ``headrace``: how ours is
``venvs``          one cached virtual environment a peer; ``native``: compiles the C programs below
``servers``        a pinned child process that is ready when it answers, and is always stopped
``workloads``      what is asked of every target, and the figures each answer gives
``replies``        is what comes through the gateway what went in?
``cpu``            CPU seconds from /proc: of a process tree, and of everything foreign to the run
``rounds``         interleaving, and dropping what a busy machine spoiled
``ratios``         medians, spreads, ours ÷ theirs; ``report``: the tables and the JSON line
``locustfile``     chat users for locust

``accuracy_llm``   what weights and a KV cache of few bits cost, on this repository's own text

``simulate_balancing``  the ways to balance, on virtual time; ``simulated_fleet``: its servers and its clock

``mock_upstream.c`` answers without computing, ``load.c`` asks; ``http1.h`` frames messages for both.
"""
