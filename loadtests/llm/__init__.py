"""The benchmark of LLM servers and the soak of ours: what they ask, how answers are read, who answers.

``workloads``  W1 to W5: how many requests, how long, and what they share
``client``     one asyncio process that keeps a number of requests in flight, and does little else
``events``     what came in when → an answer; read once the load is over
``figures``    answers → tokens a second, waits, CPU, memory
``targets``    servers that run, of which one at a time is awake
``headrace``   how ours is started, and our gateway before it
``peers``      the others: which of them, and with what settings
``report``     tables, what was wanted of ours, and the JSON line
``mixed``      the clients of the soak; ``judgement``: what it calls a leak
"""
