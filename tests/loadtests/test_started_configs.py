"""The files that the benchmark writes for its servers, its command line, and its checks of replies."""

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from config.schema.config import Config, MatchConfig
from loadtests.bench_gateway import install
from loadtests.gateways.headrace import config
from loadtests.gateways.replies import (
    NO_KEY,
    CheckError,
    chat_body,
    check_answer,
    check_refusal,
    http_request,
    is_equivalent,
)
from loadtests.peers.envoy import envoy_config
from loadtests.peers.litellm import LITELLM_KEY, litellm_config
from loadtests.peers.nginx import nginx_config
from loadtests.peers.portkey import launch_portkey
from loadtests.peers.sglang import launch_router
from loadtests.servers import Gateway, Launch, Site, StartError, running
from loadtests.venvs import InstallError
from tests.loadtests.answering import answering

pytestmark = pytest.mark.plain

SITE = Site(Path("/somewhere"), 18080, 19090)


def test_our_config_is_valid_and_has_everything_on() -> None:
    ours = Config.model_validate(yaml.safe_load(yaml.safe_dump(config(SITE, 18082))))
    assert ours.access_log.to == "/somewhere/access.log"
    first, last = ours.models[0].routes
    assert first.when != MatchConfig() == last.when
    assert last.retry.attempts > 1
    assert all(pool.probe and pool.breaker for pool in ours.pools)
    limits = ours.tenants[0].limit_list()[0]
    assert limits.requests is not None
    assert limits.tokens is not None
    # Ten times a core's capacity: counted on every request, never a refusal.
    assert limits.requests.amount / limits.requests.period > 1e6
    assert limits.tokens.amount / limits.tokens.period > 1e6 * 300
    assert limits.concurrency is not None


def test_peers_listen_on_loopback_and_reach_both_addresses_of_the_upstream(tmp_path: Path) -> None:
    site = Site(tmp_path, 18080, 19090)
    written = {
        "nginx": nginx_config(site),
        "envoy": yaml.safe_dump(envoy_config(site, 18082)),
        "sglang": " ".join(launch_router("info")(site, tmp_path).command),
        "litellm": litellm_config(site),
    }
    for name, text in written.items():
        assert "127.0.0.1" in text, name
        assert "0.0.0.0" not in text, name
        assert "127.0.0.2" in text, name
        assert "19090" in text, name
    assert written["nginx"].count("{") == written["nginx"].count("}")
    assert "127.0.0.1:19090" in launch_portkey(site, tmp_path).headers["x-portkey-config"]


def test_headers_of_a_target_are_sent_with_every_request() -> None:
    request = http_request(b"{}", "k", {"x-target": "there"})
    assert request.endswith(b"Content-Length: 2\r\nx-target: there\r\n\r\n{}")


def test_requests_differ_in_nothing_but_the_key() -> None:
    body = chat_body(stream=False)
    assert json.loads(body)["stream"] is False
    one, other = http_request(body, ""), http_request(body, LITELLM_KEY)
    assert one.replace(NO_KEY.encode(), LITELLM_KEY.encode()) == other
    assert one.endswith(b"\r\n\r\n" + body)


def test_a_peer_that_cannot_be_had_is_named() -> None:
    def refuse() -> Path:
        raise InstallError("nginx: not on PATH")

    def start(_site: Site, _path: Path) -> Launch:
        return Launch([])

    missing: dict[str, str] = {}
    gateways = [Gateway("nginx", refuse, start), Gateway("here", lambda: Path("/here"), start)]
    assert install(gateways, missing) == {"here": Path("/here")}
    assert missing == {"nginx": "nginx: not on PATH"}


@pytest.mark.benchmarks
def test_a_server_that_ends_at_once_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    broken = Gateway(
        "broken",
        lambda: Path(sys.executable),
        lambda _site, python: Launch([str(python), "-c", "raise SystemExit('no such model')"]),
    )
    with (
        pytest.raises(StartError, match=r"broken ended with status 1:\nno such model"),
        running(broken, Path(sys.executable), 1, min(os.sched_getaffinity(0)), tmp_path),
    ):
        pass


ANSWER = b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}'


def test_a_changed_reply_is_refused_unless_the_peer_rewrites() -> None:
    rewritten = json.dumps({**json.loads(ANSWER), "id": "another"}).encode()
    with answering(lambda *_: (200, rewritten)) as port:
        check_answer(port, "key", ANSWER, verbatim=False)
        with pytest.raises(CheckError, match="the upstream"):
            check_answer(port, "key", ANSWER, verbatim=True)


def test_an_error_is_no_answer_even_with_the_right_body() -> None:
    with answering(lambda *_: (500, ANSWER)) as port, pytest.raises(CheckError, match="answers 500"):
        check_answer(port, "key", ANSWER, verbatim=True)


def test_a_wrong_key_must_be_refused() -> None:
    with answering(lambda *_: (200, ANSWER)) as port, pytest.raises(CheckError, match="answers 200 to a wrong key"):
        check_refusal(port, "sk-zzzz", 401)
    with answering(lambda *_: (401, b"")) as port:
        check_refusal(port, "sk-0000", 401)


def test_malformed_answers_are_not_equivalent() -> None:
    assert is_equivalent(ANSWER, ANSWER)
    assert not is_equivalent(b"not json", ANSWER)
    assert not is_equivalent(ANSWER.replace(b"hi", b"ho"), ANSWER)
    assert not is_equivalent(ANSWER.replace(b":2}", b":3}"), ANSWER)
