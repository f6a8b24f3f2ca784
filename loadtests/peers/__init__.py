"""The gateways that ours is measured against, each started as its own users start it for speed.

Every peer has one worker process or thread pool on one core and keep-alive to the upstreams, and does what it can
of what ours does, by its own features: keys, limits, a rule before the last route, a split, balancing over two
upstreams, retries, ejection, metrics and an access log. `docs/performance.md` lists the features that each
of them lacks. Versions are pinned, so that a change in a ratio is a change of ours.
"""

from loadtests.peers.envoy import ENVOY
from loadtests.peers.litellm import LITELLM_PROXY
from loadtests.peers.nginx import NGINX
from loadtests.peers.portkey import PORTKEY
from loadtests.peers.sglang import SGLANG, SGLANG_QUIET

__all__ = ["PEERS"]

PEERS = {gateway.name: gateway for gateway in (NGINX, ENVOY, SGLANG, SGLANG_QUIET, PORTKEY, LITELLM_PROXY)}
