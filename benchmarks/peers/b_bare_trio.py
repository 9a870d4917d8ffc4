"""The floor: see ``bare_trio.py``."""

from __future__ import annotations

import bare_trio
import orjson
import trio
from common import CHAT, THINK, TURNS, WARM_TURNS, Measured, arguments, folder, report_saved
from stream_server import serving


async def main() -> None:
    workload, size, mode = arguments()
    if mode == "async":
        add, slow = bare_trio.ASYNC
    else:
        add, slow = bare_trio.SYNC
    await bare_trio.agent(WARM_TURNS, 1, 0, add)
    if workload == "W1":
        with Measured():
            await bare_trio.agent(size, 1, 0, add)
    elif workload == "W2":
        logs = []

        async def one() -> None:
            logs.append(await bare_trio.agent(TURNS, 1, THINK, add))

        with Measured(agents=size):
            async with trio.open_nursery() as nursery:
                for _ in range(size):
                    nursery.start_soon(one)
        assert len(logs) == size
    elif workload == "W4":
        with folder() as place:
            with Measured(quiet=True) as saving:
                await bare_trio.saved(size, place / "log")
            with Measured(quiet=True) as loading:
                for line in (place / "log").read_bytes().splitlines():
                    orjson.loads(line)
            report_saved(saving, loading, place)
    elif workload == "W5":
        with serving(size) as origin:
            await bare_trio.streamed(origin + CHAT)
            with Measured():
                events = await bare_trio.streamed(origin + CHAT)
        assert events > size
    elif workload == "W6":
        with Measured():
            await bare_trio.agent(1, size, 0, slow)


trio.run(main)
