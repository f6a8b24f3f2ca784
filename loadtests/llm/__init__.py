"""The benchmark of LLM servers and the soak of ours: requests, clients, servers and reports.

``workloads``  W1 to W5, and in ``copying`` W6: the numbers of requests, lengths and shared prefixes
``client``     one asyncio process that holds a number of requests in flight
``events``     segments and their times → an answer, read after the load
``figures``    answers → tokens a second, waits, CPU, memory
``targets``    running servers, one of them awake at a time
``headrace``   starts our runtime, and our gateway before it
``peers``      the other servers and their settings
``report``     tables, goals and the JSON line
``mixed``      the clients of the soak; ``judgement``: what counts as a leak
"""
