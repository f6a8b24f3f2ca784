"""The parts of the benchmarks of gateways.

``headrace``   starts our gateway, with everything on that a company would have on
``workloads``  the loads of every gateway, and the figures of each
``replies``    the request of every target, and the check that a gateway changes no response
``variants``   the CPU time of variants of one configuration, in interleaved rounds
``arms``       the price of splits, rollouts and experiments over a plain route
``providers``  the price of chats translated for Gemini and Bedrock; ``provider_stub``: answers as they do
``batches``    the configuration, the lines and the live requests of the benchmark of batches
"""
