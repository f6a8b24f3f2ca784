"""A stand-in for vLLM's program: `serve MODEL --served-model-name NAME --uds PATH …`, and as vLLM does, with a process
of its own for the engine."""

import argparse
import asyncio
import signal

from tests.support import mortal_server


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    for option in ("--served-model-name", "--uds", "--revision"):
        parser.add_argument(option)
    parser.add_argument("--max-model-len", type=int)
    options = parser.parse_args()
    print(f"serving {options.model} as {options.served_model_name}, at most {options.max_model_len}", flush=True)
    engine = await asyncio.create_subprocess_exec("sleep", "1000", start_new_session=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await asyncio.start_unix_server(mortal_server._serve, options.uds)
    await ended.wait()
    print("stopping", flush=True)
    server.close()
    engine.terminate()
    await engine.wait()


if __name__ == "__main__":
    asyncio.run(main())
