"""W5 and W7: what do the provider formats cost, in requests built and in answers streamed?

W7: µs per request for conversations of 10 to 1,000 messages of which one is new, as a turn adds it; against encoding
all of them afresh, and against one copy of the bytes. Law: at 1,000 messages at most a tenth of encoding all afresh,
and from 100 to 1,000 messages the cost grows no more than the bytes do (1.3x).

Decoders: events per second, sans-IO, each event by itself; against orjson alone on the same events.

W5: small deltas per second through a whole client, 20,000 in an answer, from a server in a process of its own. Floor:
httpx on trio, lines, and orjson on each event of the same stream. By CPU time of this process and by wall time.

CPU time, best of n, where nothing else is said. Each round is interleaved with its floors; ratios are medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any, NamedTuple

import bare_trio
import orjson
import trio
from machine import FLAT, collecting, describe, ratio
from stream_server import serving, stream

from alpineagents import (
    Anthropic,
    Google,
    Message,
    OpenAI,
    OpenAICompatible,
    Request,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.models._http_model import HTTPModel
from alpineagents.models._sse import SSEDecoder

SIZES = (10, 100, 1_000)
CHUNKS = 20_000
ROUNDS = 5
AFRESH, BARE = 0.1, 0.6
"""At most this part of encoding all afresh; at least this part of the floor's speed."""

NAMES = ("read_file", "write_file", "list_files", "search", "run")
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = tuple([ToolSpec(name, f"Do what {name} says, and return what came of it.", SCHEMA) for name in NAMES])
LINES = "\n".join([f"    value_{number} = compute(value_{number - 1}, 'naïve')" for number in range(8)])


class Format(NamedTuple):
    path: str
    """Of its requests."""
    at: Callable[[str], HTTPModel]
    """Makes a model that asks the server at an origin."""


FORMATS = {
    "Chat": Format("/v1/chat/completions", lambda origin: OpenAICompatible("m", base_url=f"{origin}/v1", api_key="x")),
    "Anthropic": Format("/v1/messages", lambda origin: Anthropic("m", base_url=origin, api_key="x")),
    "Google": Format(
        "/v1beta/models/m:streamGenerateContent", lambda origin: Google("m", base_url=origin, api_key="x")
    ),
    "Responses": Format("/v1/responses", lambda origin: OpenAI("m", base_url=f"{origin}/v1", api_key="x")),
}
NOWHERE = "http://127.0.0.1:9"

Costs = dict[str, list[float]]
"""What things cost, each in every round."""


def add(costs: Costs, found: dict[str, float]) -> None:
    for name, cost in found.items():
        costs.setdefault(name, []).append(cost)


def cpu(work: Callable[[], object]) -> int:
    """Return the ns that *work* takes."""
    start = process_time_ns()
    work()
    return process_time_ns() - start


def each(work: Callable[[Any], object], items: Iterable[object]) -> None:
    for item in items:
        work(item)


# ---- W7: requests


def reply(number: int) -> Message:
    call = ToolCall(f"call_{number}", "read_file", {"path": f"src/module_{number}.py"})
    return Message("assistant", [TextBlock(f"Then I look at module_{number}, which was named there."), call])


def result(number: int) -> Message:
    return Message("tool", [ToolResultBlock(f"call_{number}", [TextBlock(LINES)])])


def conversation(n: int) -> list[Message]:
    """Return *n* messages, an even number; the last is a result."""
    opening = [Message.user("Find the bug."), Message.user("It is in src.")]
    return opening + [message for number in range(n // 2 - 1) for message in (reply(number), result(number))]


def asking(messages: Sequence[Message]) -> Request:
    return Request(messages=messages, system="You are a careful programmer. " * 20, tools=TOOLS)


def requests(form: Format, n: int) -> dict[str, float]:
    """Return µs per request of *n* messages, and its bytes."""
    messages = conversation(n)
    asked = asking(messages)
    fresh = [form.at(NOWHERE)._wire for _ in range(max(10, 1_000 // n))]
    again = [asking([*messages[:-1], result(n // 2 - 2)]) for _ in range(max(50, 10_000 // n))]
    wire = form.at(NOWHERE)._wire
    body = wire.encode(asked)
    bodies = [bytearray(body) for _ in again]
    with collecting(False):
        return {
            "afresh": cpu(lambda: each(lambda new: new.encode(asked), fresh)) / len(fresh) / 1_000,
            "one new": cpu(lambda: each(wire.encode, again)) / len(again) / 1_000,
            "copy": cpu(lambda: each(bytes, bodies)) / len(bodies) / 1_000,
            "bytes": len(body),
        }


def surely(costs: list[float], floors: list[float]) -> float:
    """Return the least that *costs* are over *floors*; what is too much is so in each round and in the best of all."""
    return min(min(costs) / min(floors), *[cost / floor for cost, floor in zip(costs, floors, strict=True)])


def growth_per_byte(costs: dict[int, Costs]) -> float:
    """Return how many times more a byte costs in the longest conversation than in one a tenth as long."""
    few, many = [[new / costs[n]["bytes"][0] for new in costs[n]["one new"]] for n in SIZES[-2:]]
    return surely(many, few)


def measure_requests() -> dict[str, dict[int, Costs]]:
    costs: dict[str, dict[int, Costs]] = {name: {n: {} for n in SIZES} for name in FORMATS}
    for _ in range(ROUNDS):
        for name, form in FORMATS.items():
            for n in SIZES:
                add(costs[name][n], requests(form, n))
    return costs


def show_requests(costs: dict[str, dict[int, Costs]]) -> list[str]:
    """Print µs per request; return the lines with the ratios."""
    print(f"\n{'requests':12}{'messages':>10}{'bytes':>10}{'afresh':>10}{'one new':>10}{'a copy':>10} µs  per second")
    ratios: list[str] = []
    for name, by_size in costs.items():
        for n, found in by_size.items():
            best = {key: min(values) for key, values in found.items()}
            figures = "".join([f"{best[key]:>10,.1f}" for key in ("afresh", "one new", "copy")])
            print(f"{name:12}{n:>10,}{best['bytes']:>10,.0f}{figures}{1e6 / best['one new']:>15,.0f}")
        of_afresh = ", ".join([f"{ratio(found['one new'], found['afresh']):.3f}" for found in by_size.values()])
        of_copy = ratio(by_size[SIZES[-1]]["one new"], by_size[SIZES[-1]]["copy"])
        ratios.append(f"{name:12}one new / all afresh: {of_afresh} (law: at most {AFRESH}); / a copy: {of_copy:.0f}")
        ratios[-1] += f"; a byte of {SIZES[-1]:,} costs {growth_per_byte(by_size):.2f}x one of {SIZES[-2]}"
    return ratios


def check_law(costs: dict[str, dict[int, Costs]]) -> None:
    for name, by_size in costs.items():
        longest = by_size[SIZES[-1]]
        assert surely(longest["one new"], longest["afresh"]) <= AFRESH, f"{name} encodes more than what is new"
        assert growth_per_byte(by_size) <= FLAT, f"{name}: a long conversation costs more than its bytes"


# ---- Decoders


def decoders(form: Format, raws: list[bytes]) -> dict[str, float]:
    """Return µs per event."""
    events = [event for raw in raws for event in SSEDecoder().feed(raw)]
    decoder, lines = form.at(NOWHERE)._wire.decoder(), SSEDecoder()
    found = {
        "orjson": cpu(lambda: each(orjson.loads, [event.data for event in events if event.data != b"[DONE]"])),
        "lines": cpu(lambda: each(lines.feed, raws)),
        "decoder": cpu(lambda: each(lambda event: decoder.feed([event]), events)),
    }
    assert decoder.finished
    return {name: cost / len(events) / 1_000 for name, cost in found.items()}


def measure_decoders() -> list[str]:
    """Print events per second; return the lines with the ratios."""
    costs: dict[str, Costs] = {name: {} for name in FORMATS}
    for name, form in FORMATS.items():
        raws = stream(form.path, CHUNKS)
        for _ in range(ROUNDS):
            add(costs[name], decoders(form, raws))
    print(f"\n{'decoders':12}{'orjson':>12}{'lines':>12}{'decoder':>12} events per second")
    for name, found in costs.items():
        print(f"{name:12}" + "".join([f"{1e6 / min(found[key]):>12,.0f}" for key in ("orjson", "lines", "decoder")]))
    return [
        f"{name:12}decoder / orjson {1 / ratio(found['decoder'], found['orjson']):.2f} of its speed"
        for name, found in costs.items()
    ]


# ---- W5: answers streamed


async def ours(model: HTTPModel) -> None:
    texts: list[str] = []

    def emit(event: object) -> None:
        if isinstance(event, TextDelta):
            texts.append(event.text)

    answer = await model.respond(Request(messages=[Message.user("Go.")]), emit)
    assert len(texts) == CHUNKS
    assert answer.text == "".join(texts)


async def bare(url: str) -> None:
    assert await bare_trio.streamed(url) > CHUNKS


async def timed(work: Callable[[], Any], name: str) -> dict[str, float]:
    """Return µs per delta, of CPU and of wall time, with garbage collection as it is by default."""
    with collecting(True):
        start, start_cpu = perf_counter_ns(), process_time_ns()
        await work()
        wall, used = perf_counter_ns() - start, process_time_ns() - start_cpu
    return {f"{name}, CPU": used / CHUNKS / 1_000, f"{name}, wall": wall / CHUNKS / 1_000}


async def measure_streams() -> list[str]:
    """Print deltas per second; return the lines with the ratios."""
    costs: dict[str, Costs] = {name: {} for name in FORMATS}
    with serving(CHUNKS) as origin:
        for number in range(ROUNDS + 1):
            for name, form in FORMATS.items():
                found = await timed(partial(bare, origin + form.path), "bare")
                found |= await timed(partial(ours, form.at(origin)), "ours")
                if number:  # The first warms up.
                    add(costs[name], found)
    keys = [f"{side}, {kind}" for side in ("bare", "ours") for kind in ("CPU", "wall")]
    print(f"\n{'streamed':12}" + "".join([f"{key:>12}" for key in keys]) + " deltas per second, medians")
    for name, found in costs.items():
        print(f"{name:12}" + "".join([f"{1e6 / median(found[key]):>12,.0f}" for key in keys]))
    return [
        f"{name:12}streamed, ours / bare speed: {1 / ratio(found['ours, CPU'], found['bare, CPU']):.2f} by CPU,"
        f" {1 / ratio(found['ours, wall'], found['bare, wall']):.2f} by wall time (wanted: {BARE})"
        for name, found in costs.items()
    ]


def main() -> None:
    print(describe())
    built = measure_requests()
    ratios = [*show_requests(built), *measure_decoders(), *trio.run(measure_streams)]
    print("", *ratios, sep="\n")
    check_law(built)


if __name__ == "__main__":
    main()
