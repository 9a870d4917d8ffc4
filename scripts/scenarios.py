"""Three scenarios for ``make simulate``, and examples of how to write one: services that live through everything.

What is in ``sim.process`` can crash at any step, and starts anew; what is outside of it are the people who use the
service. They know what was acknowledged to them, and at the end it must be there.
"""

from __future__ import annotations

import attrs
import trio

from alpineagents import (
    Agent,
    AllowByName,
    Budget,
    DecideByHuman,
    Message,
    MessageEntry,
    OutputError,
    Reply,
    Request,
    State,
    Store,
    TextBlock,
    ToolCall,
    ToolError,
    ToolResultEntry,
    Usage,
    default_loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, Simulation, tool_call

# ---- A chat service: people write while it answers


@tool
async def look_up(order: str) -> str:
    """Look up an order."""
    await trio.sleep(1)
    return f"{order} is on its way"


@tool
def price_of(order: str) -> str:
    """Say what an order costs."""
    return f"{order} costs 20 francs"


@tool
async def refund(order: str, state: State) -> str:
    """Pay the money back."""
    async with state.edit_extra_data() as data:
        data[f"refund of {order}"] = True
    return "paid back"


def support(request: Request) -> Reply | str:
    """Answer as a support agent's model would: look up whatever the person asks about, then answer."""
    if request.tools and request.tool_choice != "none":
        last = request.messages[-1]
        if last.role == "user" and not last.is_notice and "order" in last.text:
            order = last.text.split()[-1]
            calls = [tool_call("look_up", order=order), tool_call("price_of", order=order)]
            if "refund" in last.text:
                calls.append(tool_call("refund", order=order))
            return said(request, "Let me see.", *calls)
    return said(request, f"That was all about message {len(request.messages)}.")


def said(request: Request, text: str, *calls: ToolCall) -> Reply:
    """Return a reply whose usage grows with the conversation, as a provider counts it."""
    usage = Usage(input_tokens=40 * len(request.messages), output_tokens=20, requests=1)
    return Reply((TextBlock(text), *calls), "fake/support", "tool_calls" if calls else "stop", usage)


@attrs.define
class Customer:
    """Somebody who writes to the service."""

    name: str
    to_say: list[str]
    """What isn't acknowledged yet."""
    said: list[str] = attrs.field(factory=list)
    """What is."""


async def chat_service(sim: Simulation) -> None:
    """Customers write while the agent works. Each message that is acknowledged is in the history, exactly once."""
    model = sim.model(FakeModel(support, name="fake/support", context_window=1_000))
    agent = Agent(
        name="support",
        model=model,
        tools=sim.tools([look_up, price_of, refund]),
        permissions=[AllowByName(["look_up", "price_of"]), DecideByHuman()],
        human=sim.human(lambda question: sim.random.choice(["yes", "no"])),
        store=sim.store,
    )
    customers = [Customer(f"customer-{n}", messages_of(sim, n)) for n in range(sim.random.randint(1, 4))]

    async def service() -> None:
        async with trio.open_nursery() as nursery:
            for customer in customers:
                nursery.start_soon(serve, sim, agent, customer)

    async def audit() -> None:
        for customer in customers:
            state = await sim.store.load(customer.name)
            heard = [entry.content.text for entry in state.history if isinstance(entry, MessageEntry)]
            assert [text for text in heard if text in customer.said] == customer.said
            assert waiting_for_user(state), state

    await sim.process(service)
    await sim.process(audit)


def messages_of(sim: Simulation, number: int) -> list[str]:
    kinds = ["hello", "where is order", "refund order", "thanks for order"]
    return [f"{sim.random.choice(kinds)} {number}{n}" for n in range(sim.random.randint(1, 5))]


async def opened(store: Store, name: str) -> State:
    """Return the conversation of this name; a new one, saved, if there is none."""
    if await store.has(name):
        return await store.load(name)
    state = State(id=name, messages=[Message.user("I need help.")])
    await store.save(state)
    return state


async def serve(sim: Simulation, agent: Agent, customer: Customer) -> None:
    """Hold one conversation to its end: run the agent whenever the customer has said something."""
    state = await opened(sim.store, customer.name)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen, sim, state, customer)
        nursery.start_soon(follow, state, customer)
        while customer.to_say or not waiting_for_user(state):
            await sim.run(agent, state)
            await trio.sleep(1)
        await agent.ask(state, "Give this conversation a title.")
        nursery.cancel_scope.cancel()


async def listen(sim: Simulation, state: State, customer: Customer) -> None:
    """Take what the customer writes; a message that was sent twice is taken once."""
    while customer.to_say:
        await trio.sleep(sim.random.uniform(0, 6))
        text = customer.to_say[0]
        if any(isinstance(entry, MessageEntry) and entry.content.text == text for entry in state.history):
            await sim.store.save(state)
        else:
            await sim.acknowledged(state.add_message(Message.user(text)))
        customer.said.append(customer.to_say.pop(0))


async def follow(state: State, customer: Customer) -> None:
    """Watch the conversation, as a page does that shows it: nothing is shown that isn't saved."""
    shown = 0
    async with state.watch() as entries:
        async for entry in entries:
            assert entry.seq == shown, customer.name
            shown += 1
            assert state.saved >= shown


# ---- A research team: subagents at once, a budget for all, a stream that is watched

TOPICS = ("glaciers", "lakes", "huts", "trails", "weather")


@tool
async def read_page(topic: str, page: int) -> str:
    """Read a page of the library."""
    await trio.sleep(0.3)
    if page > 2:
        raise ToolError(f"there is no page {page}")
    return f"{topic}, page {page}: much to read"


@tool
def count_words(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def reader(request: Request) -> list[str | ToolCall] | str:
    """Read three pages at once, one of which isn't there, then say what was in them."""
    topic = request.messages[0].text.split()[-1]
    if request.messages[-1].role == "tool":
        return f"{topic}: read"
    return [
        *[tool_call("read_page", topic=topic, page=page) for page in (1, 2, 3)],
        tool_call("count_words", text=topic),
    ]


async def research_team(sim: Simulation) -> None:
    """A lead gives every topic to a reader. In the end all conversations are saved, and lead to each other."""
    topics = list(TOPICS[: sim.random.randint(1, len(TOPICS))])

    def lead(request: Request) -> list[str | ToolCall] | str:
        asked = {
            call.args["prompt"].split()[-1] for message in request.messages for call in message.tool_calls if call.args
        }
        missing = [topic for topic in topics if topic not in asked]
        if missing:
            return [tool_call("reader", prompt=f"Read about {topic}") for topic in missing]
        return "all is read"

    reading = Agent(
        name="reader",
        description="Reads about a topic.",
        model=sim.model(reader, name="fake/reader"),
        tools=sim.tools([read_page, count_words]),
        max_parallel_tools=sim.random.choice([1, 2, 16]),
    )
    agent = Agent(
        name="lead",
        model=sim.model(lead, name="fake/lead"),
        tools=[reading],
        store=sim.store,
        budget=Budget(requests=sim.random.choice([3, 40])),
    )

    async def work() -> None:
        state = await opened(sim.store, "research")
        while not waiting_for_user(state):
            if sim.random.random() < 0.5:
                state = await sim.run(agent, state)
            else:
                await streamed(sim, agent, state)

    async def audit() -> None:
        state = await sim.store.load("research")
        for entry in state.history:
            if isinstance(entry, ToolResultEntry) and not entry.is_error:  # else its last save may have failed
                for child_id in entry.child_ids:
                    child = await state.load_child(child_id)
                    assert (child.parent_id, child.parent_call_id) == (state.id, entry.call.id)

    await sim.process(work)
    await sim.process(audit)


async def streamed(sim: Simulation, agent: Agent, state: State) -> None:
    """Run it as a stream, for somebody who may close the page."""
    with sim.impatience():
        async with agent.stream(state) as run:
            async for event in run:
                assert event.state is state or event.state.parent_id in (None, state.id)


# ---- Everything is flaky: who uses it changes its mind, too


@tool
async def work(state: State, seconds: float) -> str:
    """Work for some time."""
    await trio.sleep(seconds)
    state.add_message(Message.notice(f"worked for {seconds:.1f} s"))
    return "x" * 100


@tool(timeout=5)
async def gamble(sim_says: str) -> str:
    """Do what may not work out."""
    await trio.sleep(1)
    if sim_says == "refuse":
        raise ToolError("no luck")
    if sim_says == "hang":
        await trio.sleep(60)
    return sim_says


@tool(parallel=False)
def alone(number: int) -> int:
    """Never at the same time as others."""
    return number + 1


async def flaky_everything(sim: Simulation) -> None:
    """Many conversations whose owners change everything while the agent works, that is as moody as they are."""

    def moody(request: Request) -> list[str | ToolCall] | str:
        if request.tool_choice == "none" or not request.tools or sim.random.random() < 0.3:
            return "enough"
        return [any_call(sim) for _ in range(sim.random.randint(1, 4))]

    helper = Agent(
        name="helper",
        description="Helps.",
        model=sim.model(moody, name="fake/helper"),
        tools=sim.tools([work, gamble]),
        loop=default_loop.copy(limit=3),
    )
    agent = Agent(
        name="moody",
        model=sim.model(moody, name="fake/moody"),
        tools=[*sim.tools([work, gamble, alone]), helper],
        loop=default_loop.copy(limit=5),
        permissions=[AllowByName(["work", "alone", "helper"]), DecideByHuman()] if sim.random.random() < 0.5 else None,
        human=sim.human(lambda question: sim.random.choice(["yes", "no", "always"])),
        store=sim.store,
    )
    names = [f"flaky-{n}" for n in range(sim.random.randint(1, 3))]

    async def service() -> None:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(toss_about, sim, agent, await opened(sim.store, name))

    await sim.process(service)


def any_call(sim: Simulation) -> ToolCall:
    """Return a call, right or wrong."""
    match sim.random.randint(0, 5):
        case 0:
            return tool_call("gamble", sim_says=sim.random.choice(["win", "refuse", "hang"]))
        case 1:
            return tool_call("alone", number=sim.random.randint(0, 9))
        case 2:
            return tool_call("helper", prompt="help")
        case 3:
            return tool_call("work", seconds="many")
        case 4:
            return tool_call("no_such_tool")
        case _:
            return tool_call("work", seconds=sim.random.uniform(0, 3))


async def toss_about(sim: Simulation, agent: Agent, state: State) -> None:
    """Run it some times, with somebody at work on it meanwhile, and change it in between."""
    for _ in range(sim.random.randint(1, 3)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(meddle, sim, agent, state)
            await sim.run(agent, state)
            nursery.cancel_scope.cancel()
        await change(sim, agent, state)
        if state.finished:
            return
        await sim.acknowledged(state.add_message(Message.user("go on")))


async def meddle(sim: Simulation, agent: Agent, state: State) -> None:
    """Add, edit and ask while the agent works."""
    for number in range(sim.random.randint(0, 6)):
        await trio.sleep(sim.random.uniform(0, 2))
        match sim.random.randint(0, 3):
            case 0:
                state.add_message(Message.user(f"and {number}?"))
            case 1:
                await sim.acknowledged(state.add_message(Message.notice(f"it is {number}")))
            case 2:
                async with state.edit_extra_data() as data:
                    data["meddled"] = number
            case _:
                try:
                    await agent.ask(state, "Are you well?", returns=sim.random.choice([str, bool]), retries=1)
                except OutputError:
                    continue


async def change(sim: Simulation, agent: Agent, state: State) -> None:
    """Change what was said: all between two turns."""
    before = state.snapshot()
    match sim.random.randint(0, 5):
        case 0:
            await sim.acknowledged(state.compact("much was said"))
        case 1:
            await sim.acknowledged(state.clear_tool_results(keep_last=1))
        case 2:
            await sim.run(agent, state.fork())
        case 3:
            await agent.compact(state)
            await sim.acknowledged(state.restore(before))
        case 4:
            await sim.acknowledged(state.finish("done"))
        case _:
            return


SCENARIOS = (chat_service, research_team, flaky_everything)
