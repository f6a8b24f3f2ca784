from config.schema.config import LlmRuntime
from gateway.features.placement.supervisor_runtimes import SupervisorRuntimes

CONFIG = LlmRuntime(kind="llm", model="bundled:m")


async def test_a_lent_runtime_is_in_use_until_its_last_user_returns_it() -> None:
    lent = SupervisorRuntimes({"small": {0: "unix:/run/one.sock"}})
    exits: list[str] = []
    first = lent.make("small", CONFIG, exits.append)
    second = lent.make("small", CONFIG, exits.append)
    assert lent.in_use() == []
    for one in (first, second):
        assert (one.address, one.pid) == ("unix:/run/one.sock", None)
        one.start()
    await first.stop()
    assert lent.in_use() == ["unix:/run/one.sock"]

    lent.addresses = {"small": {0: "unix:/run/two.sock"}}  # a new configuration
    third = lent.make("small", CONFIG, exits.append)
    third.start()
    assert lent.in_use() == ["unix:/run/one.sock", "unix:/run/two.sock"]
    await second.stop()
    assert lent.in_use() == ["unix:/run/two.sock"]
    assert exits == []
