"""Several workers under a supervisor: the view of clients and operators while workers start, end and die."""

import asyncio
import os
import signal
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from adapters.http1.message import Response
from tests.e2e.test_operations import chat, configuration
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.traffic import traffic
from tests.support.upstreams import Upstream, stream, upstream, whole

pytestmark = pytest.mark.timeout(1800)


async def until_ready(g: GatewayProcess, workers: int) -> dict[str, Any]:
    """Wait until so many workers serve and no worker is draining."""
    return await g.until(f"[w['state'] for w in s['workers']] == ['ready'] * {workers}")


async def shared_key(g: GatewayProcess) -> str:
    """A key that every worker knows."""
    return await g.key()


async def counted(g: GatewayProcess, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
        samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def rewrite(g: GatewayProcess, **changes: Any) -> None:
    written = yaml.safe_load(g.config.read_text())
    g.config.write_text(yaml.safe_dump({**written, **changes}, sort_keys=False))


async def test_workers_serve_together_as_one_gateway(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=3, auth={"demo_key": True})) as g:
        state = await until_ready(g, 3)
        assert len({worker["pid"] for worker in state["workers"]} | {g.process.pid}) == 4
        key = (await g.printed(r"Demo key [^:]*: (hr-\S+)"))[1]
        async with traffic(g.url, key, clients=20, renew=5) as load:
            await load.until_answered(300)
        assert load.dropped == []
        assert load.statuses == {200: load.sent}
        assert await counted(g, "headrace_requests_total", tenant="acme", status="200") == load.sent
        assert await counted(g, "headrace_request_duration_seconds_count") == load.sent
        assert await counted(g, "headrace_worker_up") == 3
        state = await g.until_idle()
        assert [e["health"] for e in state["endpoints"]] == ["healthy"]
        assert await g.stop() == 0
        lines = (tmp_path / "access.log").read_text().splitlines()
        assert len(lines) == load.sent
        assert all(line.startswith("{") and line.endswith("}") for line in lines)


async def test_one_worker_applies_an_order_and_reports_the_result(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=2)) as g, aiohttp.ClientSession() as http:
        await until_ready(g, 2)
        for model, code in (("chat", "unsupported_operation"), ("nobody", "model_not_found")):
            async with http.post(f"{g.admin}/v2/repository/models/{model}/load", json={}) as response:
                assert response.status in (400, 404)
                assert (await response.json())["error"]["code"] == code


async def test_new_connections_spread_over_the_workers(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=4)) as g:
        state = await until_ready(g, 4)
        port = int(g.url.rpartition(":")[2])
        sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        try:
            await g.until("s['connections'] >= 200")
            shares = Counter({worker["pid"]: 0 for worker in state["workers"]})
            for pid in shares:
                connections = psutil.Process(pid).net_connections("tcp")
                shares[pid] = sum(one.status == psutil.CONN_ESTABLISHED and one.laddr[1] == port for one in connections)
            assert sum(shares.values()) == 200
            assert max(shares.values()) - min(shares.values()) <= 3, shares
        finally:
            for one in sockets:
                one.close()


async def test_a_key_is_valid_and_revoked_in_all_workers(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=3)) as g:
        await until_ready(g, 3)
        key = await shared_key(g)
        assert (await command("keys", "revoke", key.split("-")[1], "--config", str(g.config)))[0] == 0
        async with asyncio.timeout(300):
            while {(await chat(g, key))[0] for _ in range(20)} != {401}:
                pass


async def test_a_killed_worker_costs_its_own_requests_and_nothing_else(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=3)) as g:
        victim, *others = (await until_ready(g, 3))["workers"]
        key = await shared_key(g)
        async with traffic(g.url, key, clients=30, pause=0.01) as load:
            await load.until_answered(100)
            os.kill(victim["pid"], signal.SIGKILL)
            await g.until("s['workers'][0]['last_end']")
            await load.until_answered(300)
            state = await until_ready(g, 3)
            await load.until_answered(100)
        assert len(load.dropped) < 30  # of 30 clients: those that the victim had
        assert load.refused == 0
        assert set(load.statuses) == {200}
        assert state["workers"][0]["pid"] not in (None, victim["pid"])
        assert (state["workers"][0]["restarts"], state["workers"][0]["last_end"]) == (1, "was killed by signal 9")
        assert [w["pid"] for w in state["workers"][1:]] == [w["pid"] for w in others]
        await g.until_idle()
        assert await counted(g, "headrace_worker_restarts_total") == 1


async def test_a_rolling_restart_loses_no_request_and_no_count(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=3)) as g:
        before = {worker["pid"] for worker in (await until_ready(g, 3))["workers"]}
        key = await shared_key(g)
        counted_before = await counted(g, "headrace_requests_total")
        async with traffic(g.url, key, clients=30, renew=50, pause=0.01) as load:
            await load.until_answered(100)
            g.process.send_signal(signal.SIGUSR2)
            await g.printed("all workers restarted")
            state = await until_ready(g, 3)
            await load.until_answered(100)
        assert before.isdisjoint(worker["pid"] for worker in state["workers"])
        assert (load.dropped, load.refused, load.statuses) == ([], 0, {200: load.sent})
        assert await counted(g, "headrace_requests_total") == counted_before + load.sent
        async with aiohttp.ClientSession() as http, http.post(f"{g.admin}/admin/restart", json={}) as response:
            assert response.status == 202
        await g.until(f"not {{w['pid'] for w in s['workers']}} & { ({w['pid'] for w in state['workers']}) }")
        await g.until_idle()


async def test_a_stream_outlives_the_restart_of_its_worker(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=2)) as g:
        key = await shared_key(g)
        words = " ".join(f"w{i}" for i in range(60))
        up.behaviour = lambda body: asyncio.sleep(0, stream(words, gap=0.05))
        body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"authorization": f"Bearer {key}"}
        async with (
            aiohttp.ClientSession() as http,
            http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response,
        ):
            first = await response.content.readany()
            g.process.send_signal(signal.SIGUSR2)
            await g.printed("all workers restarted")
            assert "draining" in [worker["state"] for worker in (await g.state())["workers"]]
            text = (first + await response.read()).decode()
        assert all(f'"{word} "' in text for word in words.split())
        assert text.endswith("data: [DONE]\n\n")
        await until_ready(g, 2)


async def test_sigterm_under_load_drops_no_request(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=3)) as g:
        workers = [psutil.Process(worker["pid"]) for worker in (await until_ready(g, 3))["workers"]]
        key = await shared_key(g)
        async with traffic(g.url, key, clients=30, renew=5) as load:
            await load.until_answered(200)
            assert await g.stop() == 0
        assert load.dropped == []
        assert set(load.statuses) == {200}
        assert load.sent == load.answered
        assert load.refused > 0  # the port was closed by then
        assert not any(worker.is_running() for worker in workers)


async def test_a_second_signal_cuts_all_workers(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=2)) as g:
        workers = [psutil.Process(worker["pid"]) for worker in (await until_ready(g, 2))["workers"]]
        key = await shared_key(g)
        up.behaviour = lambda body: asyncio.sleep(3600, stream("never"))
        pending = asyncio.create_task(chat(g, key))
        await g.until("s['in_flight'] == 1")
        g.process.send_signal(signal.SIGTERM)
        await g.printed("draining")
        assert await g.stop() == 0
        with pytest.raises(aiohttp.ClientError):
            await pending
        assert not any(worker.is_running() for worker in workers)
        assert "does not stop" not in g.output


async def test_no_worker_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=3)) as g:
        workers = [psutil.Process(worker["pid"]) for worker in (await until_ready(g, 3))["workers"]]
        await g.stop(signal.SIGKILL)
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 30)
        assert alive == []


async def test_a_reload_reaches_all_workers_at_once_and_drops_nothing(tmp_path: Path) -> None:
    async with upstream("one") as one, upstream("two") as two, gateway(tmp_path, configuration(one, workers=3)) as g:
        await until_ready(g, 3)
        key = await shared_key(g)
        pools = [{"name": name, "endpoints": [up.url]} for name, up in (("up", one), ("two", two))]
        async with traffic(g.url, key, clients=20, pause=0.01) as load:
            await load.until_answered(100)
            rewrite(g, pools=pools, models=[{"name": "chat", "routes": [{"to": "two"}]}])
            await g.printed("configuration reloaded")
            async with traffic(g.url, key, clients=10) as after:
                await after.until_answered(100)
            rewrite(g, models=[{"name": "chat", "routes": [{"to": "three"}]}])
            await g.until("'three' in s['configuration']['last_error']")
            rewrite(g, models=[{"name": "chat", "routes": [{"to": "up"}]}])
            g.process.send_signal(signal.SIGHUP)
            await g.until("s['configuration']['last_error'] == ''")
            async with traffic(g.url, key, clients=10) as last:
                await last.until_answered(100)
        assert set(after.texts) == {"two"}
        assert set(last.texts) == {"one"}
        for load_ in (load, after, last):
            assert (load_.dropped, load_.statuses) == ([], {200: load_.sent})


async def test_new_workers_apply_settings_that_are_read_at_start(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=2)) as g:
        before = {worker["pid"] for worker in (await until_ready(g, 2))["workers"]}
        key = await shared_key(g)
        async with traffic(g.url, key, clients=20, pause=0.01) as load:
            await load.until_answered(100)
            rewrite(g, workers=3, http={"max_body": "1KiB"})
            await g.printed("configuration reloaded")
            state = await until_ready(g, 3)
            rewrite(g, workers=1)
            await until_ready(g, 1)
            await load.until_answered(100)
        assert before.isdisjoint(worker["pid"] for worker in state["workers"])
        assert (load.dropped, load.statuses) == ([], {200: load.sent})
        assert (await chat(g, key, user="u" * 2000))[0] == 413
        rewrite(g, listen={"http": "127.0.0.1:1", "admin": "127.0.0.1:0"})
        await g.printed("listen.http: a change needs a restart")
        assert (await chat(g, key))[0] == 200


async def test_new_workers_that_cannot_start_change_nothing(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up, workers=2)) as g:
        before = [worker["pid"] for worker in (await until_ready(g, 2))["workers"]]
        written = yaml.safe_load(g.config.read_text())
        rewrite(g, access_log={"to": f"{g.config}/access.log"})  # a file is no folder
        state = await g.until("s['configuration']['last_error']")
        assert "access_log.to" in state["configuration"]["last_error"]
        assert [worker["pid"] for worker in state["workers"]] == before
        rewrite(g, access_log=written["access_log"], auth={"demo_key": True})
        await g.printed("auth: a change needs a restart")


@pytest.mark.parametrize("shared", [False, True])
async def test_the_error_of_a_port_in_use_names_it_even_if_it_would_be_shared(tmp_path: Path, shared: bool) -> None:
    with socket.socket() as holder:
        if shared:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        path = tmp_path / "taken.yaml"
        async with upstream() as up:
            base = {"version": 1, "state": {"database": f"sqlite:///{tmp_path}/state.db"}, "workers": 2}
            listen = {"http": f"127.0.0.1:{holder.getsockname()[1]}", "admin": "127.0.0.1:0"}
            path.write_text(yaml.safe_dump({**base, "listen": listen, **configuration(up)}))
            status, _, err = await command("serve", "--config", str(path))
    assert (status, "in use" in err, "Traceback" in err) == (2, True, False)


async def test_workers_that_cannot_start_end_the_start_with_one_reason(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    async with upstream() as up:
        base = {"version": 1, "state": {"database": f"sqlite:///{path}/state.db"}, "workers": 3}
        listen = {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"}
        path.write_text(yaml.safe_dump({**base, "listen": listen, **configuration(up)}))
        status, _, err = await command("serve", "--config", str(path))
    assert status == 2
    assert err.count("headrace cannot start") == 1
    assert "folder" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("workers", [0, -1, 1000, "two"])
async def test_an_absurd_number_of_workers_is_refused(tmp_path: Path, workers: object) -> None:
    async with upstream() as up:
        path = tmp_path / "absurd.yaml"
        path.write_text(yaml.safe_dump({"version": 1, "workers": workers, **configuration(up)}))
        status, out, _ = await command("check", str(path))
    assert status == 1
    assert "workers" in out


async def test_a_single_process_reports_that_more_workers_need_a_restart(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, configuration(up)) as g:
        rewrite(g, workers=2)
        await g.printed("workers: a change needs a restart")
        g.process.send_signal(signal.SIGUSR2)
        await g.printed("SIGUSR2 ignored")
        assert "workers" not in await g.state()


async def test_changes_of_a_pool_by_operators_apply_in_every_worker_and_its_successor(tmp_path: Path) -> None:
    async with upstream("one") as one, upstream("two") as two, gateway(tmp_path, configuration(one, workers=3)) as g:
        await until_ready(g, 3)
        key = await shared_key(g)
        async with aiohttp.ClientSession(g.admin) as http:
            async with http.post("/admin/pools/up/endpoints", json={"url": two.url, "weight": 2}) as response:
                assert (await response.json())["origin"] == "operator"
            async with http.get("/admin/pools") as response:
                [pool] = (await response.json())["pools"]
            first, second = pool["endpoints"]
            assert (first["origin"], second["origin"], second["weight"]) == ("configuration", "operator", 2)
            path = f"/admin/pools/up/endpoints/{first['endpoint'].removeprefix('up/')}/drain"
            async with http.post(path, json={}) as response:
                assert (await response.json())["drained"]
            async with http.post("/admin/pools/up/endpoints/none/drain", json={}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (404, "no_such_endpoint")
        async with traffic(g.url, key, clients=10, renew=1) as load:
            await load.until_answered(60)
        assert set(load.texts) == {"two"}
        g.process.send_signal(signal.SIGUSR2)
        await g.printed("all workers restarted")
        await until_ready(g, 3)
        async with traffic(g.url, key, clients=10, renew=1) as load:
            await load.until_answered(60)
        assert set(load.texts) == {"two"}


async def test_ten_thousand_requests_at_four_workers_against_a_limit_of_a_thousand_admit_a_thousand(
    tmp_path: Path,
) -> None:
    tenants = [
        {
            "name": "acme",
            "models": ["*"],
            "limits": [{"requests": "1000/month"}, {"requests": "5k/month", "per": "key"}],
        }
    ]
    config = {"workers": 4, "tenants": tenants, "auth": {"demo_key": True}}
    async with upstream() as up:
        pools = [{"name": "up", "endpoints": [up.url], "max_connections": 4000}]
        await admit_a_thousand(tmp_path, up, configuration(up, pools=pools, **config))


async def admit_a_thousand(folder: Path, up: Upstream, config: dict[str, Any]) -> None:
    async with gateway(folder, config) as g:
        await until_ready(g, 4)
        key = (await g.printed(r"Demo key [^:]*: (hr-\S+)"))[1]
        async with traffic(g.url, key, clients=400, renew=50, total=10_000) as load:
            await load.until_answered(10_000, seconds=240)
        assert load.dropped == []
        assert load.statuses == {200: 1000, 429: 9000}
        assert len(up.received) == 1000
        state = await g.until_idle()
        assert [limit["remaining"]["requests"] for limit in state["tenants"][0]["limits"]] == [
            pytest.approx(0, abs=1),
            pytest.approx(4000, abs=2),
        ]
        assert await counted(g, "headrace_requests_total", status="200") == 1000


async def test_the_reservations_of_a_killed_worker_are_released(tmp_path: Path) -> None:
    tenants = [{"name": "acme", "models": ["*"], "limits": {"concurrency": 16}}]
    config = {"workers": 2, "tenants": tenants, "auth": {"demo_key": True}}
    async with upstream() as up, gateway(tmp_path, configuration(up, **config)) as g:
        victim, _ = (await until_ready(g, 2))["workers"]
        key = (await g.printed(r"Demo key [^:]*: (hr-\S+)"))[1]
        release = asyncio.Event()

        async def wait(_: dict[str, Any]) -> Response:
            await release.wait()
            return whole("at last")

        up.behaviour = wait
        first = [asyncio.create_task(chat(g, key)) for _ in range(16)]
        await g.until("s['in_flight'] == 16")
        assert (await chat(g, key))[0] == 429
        os.kill(victim["pid"], signal.SIGKILL)
        state = await g.until("s['workers'][0]['restarts'] == 1 and s['workers'][0]['state'] == 'ready'")
        lost = 16 - state["in_flight"]
        assert 0 < lost < 16  # all went to one worker once in 30,000 times
        second = [asyncio.create_task(chat(g, key)) for _ in range(lost)]
        await g.until("s['in_flight'] == 16")
        assert (await chat(g, key))[0] == 429
        release.set()
        ended = await asyncio.gather(*first, *second, return_exceptions=True)
        assert sum(isinstance(end, aiohttp.ClientError) for end in ended) == lost
        assert sum(isinstance(end, tuple) and end[0] == 200 for end in ended) == 16
        state = await g.until_idle()
        assert state["tenants"][0]["limits"][0]["remaining"] == {"concurrency": 16}


async def test_one_bundled_runtime_serves_all_workers(tmp_path: Path) -> None:
    runtime = {"kind": "llm", "model": "bundled:smollm2-135m-instruct", "dtype": "float32", "max_model_len": 256}
    config = {
        "workers": 2,
        "auth": {"demo_key": True},
        "pools": [{"name": "smollm2", "runtime": runtime}],
        "models": [{"name": "chat", "routes": [{"to": "smollm2"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, config) as g:
        key = (await g.printed(r"Demo key [^:]*: (hr-\S+)"))[1]

        async def engine() -> tuple[psutil.Process, int]:
            """Its process and restarts, when all workers find it healthy and answer from it."""
            async with asyncio.timeout(240):  # a worker may consider the killed engine healthy until its next request
                while {(await chat(g, key, max_tokens=4))[0] for _ in range(6)} != {200}:
                    await asyncio.sleep(0.1)
            state = await g.until("s['endpoints'][0]['health'] == 'healthy'")
            [endpoint] = state["endpoints"]
            return psutil.Process(endpoint["pid"]), endpoint["restarts"]

        first, restarts = await engine()
        assert (first.ppid(), restarts) == (g.process.pid, 0)
        first.kill()
        await g.until("s['endpoints'][0]['restarts'] == 1 and s['endpoints'][0]['pid']")
        second, restarts = await engine()
        assert second.pid != first.pid

        rewrite(g, pools=[{"name": "smollm2", "runtime": {**runtime, "max_num_seqs": 8}}])
        await g.printed("configuration reloaded")
        third, restarts = await engine()
        assert (third.pid != second.pid, restarts) == (True, 0)
        await asyncio.to_thread(second.wait, 60)

        workers = [psutil.Process(worker["pid"]) for worker in (await until_ready(g, 2))["workers"]]
        await g.stop(signal.SIGKILL)
        _, alive = await asyncio.to_thread(psutil.wait_procs, [third, *workers], 60)
        assert alive == []
