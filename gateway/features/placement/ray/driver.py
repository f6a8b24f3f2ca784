"""Places replicas in a Ray cluster and reports them. A program for an interpreter with Ray.

`python driver.py ADDRESS`. Standard input has lines of JSON: `{"owner": ID}` first, then `{"place": SPEC}` and
`{"release": {"name": NAME, "namespace": NAMESPACE}}`. Standard output has lines of JSON with one field: `connected`,
`state`, `log` or `error`. The program ends with its input, and with its connection. Its end, by any signal, leaves the
replicas as they are: they are detached actors, and the next driver continues with them.

With Ray Client (`ray://`) many calls of Ray wait for the head: threads make them.
"""

import asyncio
import contextlib
import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import actor as actor_module  # type: ignore[import-not-found]  # the folder of a program is on its path
import ray
import ray.exceptions
import spreading  # type: ignore[import-not-found]

RETRY_SECONDS = 0.5
PENDING_SECONDS = 1.0
NODES_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""The longest time in which the server of Ray Client answers. It is shorter than most leases."""
CLIENT = "ray://"
T = TypeVar("T")


class Driver:
    """All replicas of one gateway in one cluster."""

    def __init__(self, write: int, address: str) -> None:
        self._write = write
        self._is_client = address.startswith(CLIENT)
        self._owner = ""
        self._followed: dict[str, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._groups = WeakValueDictionary[str, Any]()
        """The groups of the replicas that are followed."""

    async def run(self) -> None:
        """Follow the input to its end, and end the program."""
        reader = asyncio.StreamReader(limit=16 << 20)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        counting = asyncio.create_task(self._count_nodes())
        while line := await reader.readline():
            self._receive(json.loads(line))
        counting.cancel()
        _end(0)

    def _receive(self, message: dict[str, Any]) -> None:
        if "owner" in message:
            self._owner = message["owner"]
        elif "place" in message:
            spec = message["place"]
            if spec["name"] not in self._followed:
                group = self._groups.setdefault(spec["group"], spreading.Group())
                follower = ReplicaFollower(self._owner, spec, group, self.report, self.lose)
                self._followed[spec["name"]] = asyncio.create_task(follower.run())
        elif (task := self._followed.pop(message["release"]["name"], None)) is not None:
            task.cancel()
            leaving = asyncio.create_task(_release(self._owner, message["release"], task))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _count_nodes(self) -> None:
        """Report the number of nodes when it changes."""
        before = -1
        while True:
            try:
                async with asyncio.timeout(ANSWER_SECONDS if self._is_client else None):
                    count = len(await asyncio.to_thread(_alive))
            except Exception as error:  # those of gRPC too
                if self._is_client:
                    return self.lose(error)
            else:
                if count != before:
                    self.report({"connected": count})
                before = count
            await asyncio.sleep(NODES_SECONDS)

    def lose(self, error: BaseException) -> None:
        """End the program: its connection is lost. The next driver has a new session of Ray Client."""
        self.report({"error": f"lost the connection: {_first_line(error)}"})
        _end(1)

    def report(self, message: dict[str, Any]) -> None:
        """Write a message. Without a reader the program ends."""
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._write, data) :]


class ReplicaFollower:
    """One replica: places it, and reports its state until cancelled."""

    def __init__(self, owner: str, spec: dict[str, Any], group: Any, report: Any, lose: Any) -> None:
        self._owner = owner
        self._spec = spec
        self._group = group
        self._report = report
        self._lose = lose
        self._shares = False
        """Whether the next actor is placed on any node, since no node of its own was there."""
        self._line = 0
        self._last: dict[str, Any] = {}

    async def run(self) -> None:
        while True:
            try:
                await self._follow(await self._actor())
            except ray.exceptions.RayActorError as error:
                self._state("lost", _first_line(error))
            except ray.exceptions.RayError as error:
                self._state("failed", _first_line(error))
            except ConnectionError as error:
                self._lose(error)
            except Exception as error:  # those of gRPC too
                self._report({"error": _first_line(error)})
            finally:
                self._group.leave(self._spec["name"])
            await asyncio.sleep(RETRY_SECONDS)

    async def _actor(self) -> Any:
        """The existing actor of the replica, or a new one."""
        with contextlib.suppress(ValueError):
            return await asyncio.to_thread(ray.get_actor, self._spec["name"], self._spec["namespace"])
        own = {} if self._shares else self._group.requirement(self._spec, await asyncio.to_thread(_alive))
        return await _to_its_end(lambda: self._place({**self._spec["resources"], **own}))

    def _place(self, required: dict[str, float]) -> Any:
        """A new actor. Ray does not restart it: the next one may have to share a node, or have one of its own again."""
        spec = self._spec
        return (
            ray.remote(actor_module.Replica)
            .options(
                name=spec["name"],
                namespace=spec["namespace"],
                lifetime="detached",
                get_if_exists=True,
                max_restarts=0,
                max_task_retries=0,
                max_concurrency=64,
                num_cpus=required.pop("CPU", 0),
                num_gpus=required.pop("GPU", 0),
                memory=required.pop("memory", None),
                resources=required,
                scheduling_strategy="DEFAULT" if spec["strategy"] == "pack" else "SPREAD",
            )
            .remote(spec)
        )

    async def _follow(self, actor: Any) -> None:
        seen, answered = -1, False
        while True:
            answer = await _sent(actor, "watch", self._owner, seen, self._line)
            while not (await asyncio.wait([answer], timeout=PENDING_SECONDS))[0]:
                if not answered:
                    nodes = await asyncio.to_thread(_alive)
                    self._state("pending", self._pending(nodes))
                    if self._group.must_share(self._spec, nodes):
                        self._shares = True
                        return await asyncio.to_thread(ray.kill, actor)
            state = answer.result()
            answered, seen, self._line, self._shares = True, state["version"], state["line"], False
            self._group.placed(self._spec["name"], state.pop("node", ""))
            if lines := state.pop("lines"):
                self._report({"log": {"name": self._spec["name"], "lines": lines}})
            self._state("placed", "", **state)

    def _state(self, state: str, reason: str, **more: Any) -> None:
        """Report a state unless it is the last one."""
        more = {name: value for name, value in more.items() if name not in ("version", "line")}
        now = {"name": self._spec["name"], "state": state, "reason": reason, **more}
        if now != self._last:
            self._last = now
            self._report({"state": now})

    def _pending(self, nodes: list[dict[str, Any]]) -> str:
        """The reason why the replica is not placed yet. It begins with `no node` if no node is large enough."""
        required = self._spec["resources"]
        amounts = ", ".join(f"{amount:g} {name}" for name, amount in required.items()) or "nothing"
        if any(spreading.fits(required, node["Resources"]) for node in nodes):
            return f"waits for a node with {amounts}"
        most = {name: max((node["Resources"].get(name, 0) for node in nodes), default=0) for name in required}
        largest = ", ".join(f"{amount:g} {name}" for name, amount in most.items())
        return f"no node of the {len(nodes)} in the cluster has {amounts}: the most of a node is {largest}"


def _alive() -> list[dict[str, Any]]:
    """The nodes that are alive."""
    return [node for node in ray.nodes() if node["Alive"]]


async def _sent(actor: Any, method: str, *arguments: Any) -> "asyncio.Future[Any]":
    """The answer to a call of an actor, which has been sent."""
    return asyncio.wrap_future(await _to_its_end(lambda: getattr(actor, method).remote(*arguments).future()))


async def _to_its_end(call: Callable[[], T]) -> T:
    """Run a call in a thread. It has ended when this function ends, also by a cancellation: a replica is not placed,
    and its lease not renewed, after its release."""
    task = asyncio.create_task(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _release(owner: str, spec: dict[str, Any], follower: "asyncio.Task[None]") -> None:
    """Let go of a replica. One that is not placed yet is removed."""
    await asyncio.wait([follower])
    with contextlib.suppress(ray.exceptions.RayError, ConnectionError, ValueError):
        actor = await asyncio.to_thread(ray.get_actor, spec["name"], spec["namespace"])
        done = await _sent(actor, "release", owner)
        if not (await asyncio.wait([done], timeout=10 * PENDING_SECONDS))[0]:
            await asyncio.to_thread(ray.kill, actor)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _end(code: int) -> None:
    """End the program. Threads of calls that wait do not delay it."""
    sys.stdout.flush()
    os._exit(code)


def main(arguments: list[str]) -> None:
    """Run the driver."""
    write = os.dup(1)
    os.dup2(2, 1)  # Ray prints
    ray.cloudpickle.register_pickle_by_value(actor_module)
    warnings.filterwarnings("ignore", "More than 10MB of messages")  # Ray Client, after some hours of calls
    try:
        ray.init(arguments[0], log_to_driver=False, logging_level="error", ignore_reinit_error=True)
    except Exception as error:  # those of gRPC too
        os.write(write, json.dumps({"error": _first_line(error)}).encode() + b"\n")
        _end(1)
    asyncio.run(Driver(write, arguments[0]).run())


if __name__ == "__main__":
    main(sys.argv[1:])
