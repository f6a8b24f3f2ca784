"""Several workers under a supervisor: the view of clients and operators while workers start, end and die."""

import asyncio
import signal
import socket
from pathlib import Path

import psutil
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.processes import GatewayProcess, command, gateway, minimal
from tests.support.traffic import traffic
from tests.support.upstreams import upstream

pytestmark = pytest.mark.timeout(1800)


async def counted(g: GatewayProcess, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    families = text_string_to_metric_families(await g.metrics())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


async def test_workers_serve_together_as_one_gateway(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=3, auth={"demo_key": True})) as g:
        state = await g.until_ready(3)
        assert len({worker["pid"] for worker in state["workers"]} | {g.process.pid}) == 4
        key = await g.demo_key()
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
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=2)) as g:
        await g.until_ready(2)
        for model, status, code in (("chat", 400, "unsupported_operation"), ("nobody", 404, "model_not_found")):
            refused = await g.administer("POST", f"/v2/repository/models/{model}/load", {})
            assert (refused[0], refused[1]["error"]["code"]) == (status, code)


@pytest.mark.parametrize("renew", [1, 50])
async def test_a_rolling_restart_loses_no_request_and_no_count(tmp_path: Path, renew: int) -> None:
    """Neither on new connections nor on those that are used again."""
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=3)) as g:
        before = {worker["pid"] for worker in (await g.until_ready(3))["workers"]}
        key = await g.key()
        counted_before = await counted(g, "headrace_requests_total")
        async with traffic(g.url, key, clients=30, renew=renew, pause=0.01) as load:
            await load.until_answered(100)
            g.process.send_signal(signal.SIGUSR2)
            await g.printed("all workers restarted")
            state = await g.until_ready(3)
            await load.until_answered(100)
        assert before.isdisjoint(worker["pid"] for worker in state["workers"])
        assert (load.dropped, load.refused, load.statuses) == ([], 0, {200: load.sent})
        assert await counted(g, "headrace_requests_total") == counted_before + load.sent
        assert (await g.administer("POST", "/admin/restart", {}))[0] == 202
        await g.until(f"not {{w['pid'] for w in s['workers']}} & { ({w['pid'] for w in state['workers']}) }")
        await g.until_idle()


async def test_sigterm_under_load_drops_no_request(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=3)) as g:
        workers = [psutil.Process(worker["pid"]) for worker in (await g.until_ready(3))["workers"]]
        key = await g.key()
        async with traffic(g.url, key, clients=30, renew=5) as load:
            await load.until_answered(200)
            assert await g.stop() == 0
        assert load.dropped == []
        assert set(load.statuses) == {200}
        assert load.sent == load.answered
        assert load.refused > 0  # the port was closed by then
        assert not any(worker.is_running() for worker in workers)


async def test_a_reload_reaches_all_workers_at_once_and_drops_nothing(tmp_path: Path) -> None:
    async with upstream("one") as one, upstream("two") as two, gateway(tmp_path, minimal(one.url, workers=3)) as g:
        await g.until_ready(3)
        key = await g.key()
        pools = [{"name": name, "endpoints": [up.url]} for name, up in (("up", one), ("two", two))]
        async with traffic(g.url, key, clients=20, pause=0.01) as load:
            await load.until_answered(100)
            g.rewrite(pools=pools, models=[{"name": "chat", "routes": [{"to": "two"}]}])
            await g.printed("configuration reloaded")
            async with traffic(g.url, key, clients=10) as after:
                await after.until_answered(100)
            g.rewrite(models=[{"name": "chat", "routes": [{"to": "three"}]}])
            await g.until("'three' in s['configuration']['last_error']")
            g.rewrite(models=[{"name": "chat", "routes": [{"to": "up"}]}])
            g.process.send_signal(signal.SIGHUP)
            await g.until("s['configuration']['last_error'] == ''")
            async with traffic(g.url, key, clients=10) as last:
                await last.until_answered(100)
        assert set(after.texts) == {"two"}
        assert set(last.texts) == {"one"}
        for load_ in (load, after, last):
            assert (load_.dropped, load_.statuses) == ([], {200: load_.sent})


async def test_new_workers_apply_settings_that_are_read_at_start(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=2)) as g:
        before = {worker["pid"] for worker in (await g.until_ready(2))["workers"]}
        key = await g.key()
        async with traffic(g.url, key, clients=20, pause=0.01) as load:
            await load.until_answered(100)
            g.rewrite(workers=3, http={"max_body": "1KiB"})
            await g.printed("configuration reloaded")
            state = await g.until_ready(3)
            g.rewrite(workers=1)
            await g.until_ready(1)
            await load.until_answered(100)
        assert before.isdisjoint(worker["pid"] for worker in state["workers"])
        assert (load.dropped, load.statuses) == ([], {200: load.sent})
        assert (await g.chat(key, user="u" * 2000))[0] == 413
        g.rewrite(listen={"http": "127.0.0.1:1", "admin": "127.0.0.1:0"})
        await g.printed("listen.http: a change needs a restart")
        assert (await g.chat(key))[0] == 200


async def test_new_workers_that_cannot_start_change_nothing(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=2)) as g:
        before = [worker["pid"] for worker in (await g.until_ready(2))["workers"]]
        written = yaml.safe_load(g.config.read_text())
        g.rewrite(access_log={"to": f"{g.config}/access.log"})  # a file is no folder
        state = await g.until("s['configuration']['last_error']")
        assert "access_log.to" in state["configuration"]["last_error"]
        assert [worker["pid"] for worker in state["workers"]] == before
        g.rewrite(access_log=written["access_log"], auth={"demo_key": True})
        await g.printed("auth: a change needs a restart")


@pytest.mark.parametrize(("workers", "shared"), [(1, False), (2, False), (2, True)])
async def test_the_error_of_a_port_in_use_names_it_even_if_it_would_be_shared(
    tmp_path: Path, workers: int, shared: bool
) -> None:
    with socket.socket() as holder:
        if shared:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        http = f"127.0.0.1:{holder.getsockname()[1]}"
        status, err = await refused(tmp_path, http, tmp_path / "state.db", workers)
    assert (status, "in use" in err, "Traceback" in err) == (2, True, False)


async def refused(folder: Path, http: str, database: Path, workers: int) -> tuple[int, str]:
    """The status and the errors of a gateway that cannot start."""
    base = {"version": 1, "listen": {"http": http, "admin": "127.0.0.1:0"}, "workers": workers}
    path = folder / "headrace.yaml"
    path.write_text(
        yaml.safe_dump({**base, "state": {"database": f"sqlite:///{database}"}, **minimal("http://127.0.0.1:9")})
    )
    status, _, err = await command("serve", "--config", str(path))
    return status, err


async def test_workers_that_cannot_start_end_the_start_with_one_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, err = await refused(tmp_path, "127.0.0.1:0", tmp_path / "file" / "state.db", 3)
    assert (status, err.count("headrace cannot start"), "Traceback" in err) == (2, 1, False)
    assert "folder" in err


async def test_a_single_process_reports_that_more_workers_need_a_restart(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url)) as g:
        g.rewrite(workers=2)
        await g.printed("workers: a change needs a restart")
        g.process.send_signal(signal.SIGUSR2)
        await g.printed("SIGUSR2 ignored")
        assert "workers" not in await g.state()


async def test_changes_of_a_pool_by_operators_apply_in_every_worker_and_its_successor(tmp_path: Path) -> None:
    async with upstream("one") as one, upstream("two") as two, gateway(tmp_path, minimal(one.url, workers=3)) as g:
        await g.until_ready(3)
        key = await g.key()
        _, added = await g.administer("POST", "/admin/pools/up/endpoints", {"url": two.url, "weight": 2})
        assert added["origin"] == "operator"
        [pool] = (await g.administer("GET", "/admin/pools"))[1]["pools"]
        first, second = pool["endpoints"]
        assert (first["origin"], second["origin"], second["weight"]) == ("configuration", "operator", 2)
        path = f"/admin/pools/up/endpoints/{first['endpoint'].removeprefix('up/')}/drain"
        assert (await g.administer("POST", path, {}))[1]["drained"]
        for restart in (True, False):
            async with traffic(g.url, key, clients=10, renew=1) as load:
                await load.until_answered(60)
            assert set(load.texts) == {"two"}
            if restart:
                g.process.send_signal(signal.SIGUSR2)
                await g.printed("all workers restarted")
                await g.until_ready(3)


async def test_no_worker_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    async with upstream() as up, gateway(tmp_path, minimal(up.url, workers=3)) as g:
        workers = [psutil.Process(worker["pid"]) for worker in (await g.until_ready(3))["workers"]]
        await g.stop(signal.SIGKILL)
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 30)
        assert alive == []
