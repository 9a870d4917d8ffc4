"""The page's section "AgentInfo"."""

from __future__ import annotations

import hashlib

from alpineagents import AgentInfo, RunStartEntry, State
from alpineagents.testing import FakeModel

from ..run.runs import kinds
from ..states import assert_replays
from .moments import add, agent, picky, said, then


async def info_of(**settings: object) -> AgentInfo:
    """What a run of an Agent with these settings says of it."""
    state = said()
    await agent("hello").copy(**settings).run(state)
    [entry] = [entry for entry in state.history if isinstance(entry, RunStartEntry)]
    return entry.content


async def test_a_run_start_holds_an_agent_info():
    """Section 12 "AgentInfo", claim 1."""
    assert isinstance(await info_of(), AgentInfo)


async def test_an_agent_info_holds_the_name():
    """Section 12 "AgentInfo", claim 2."""
    assert (await info_of(name="adder")).name == "adder"
    assert (await info_of()).name is None


async def test_an_agent_info_holds_the_model_as_provider_and_name():
    """Section 12 "AgentInfo", claim 3."""
    assert (await info_of(model=FakeModel(["hello"], name="fake/one"))).model == "fake/one"


async def test_an_agent_info_holds_a_hash_of_the_system_prompt_and_not_its_text():
    """Section 12 "AgentInfo", claim 4."""
    info = await info_of(system="You add.")

    assert info.system_sha256 == hashlib.sha256(b"You add.").hexdigest()
    assert "You add." not in repr(info)
    assert (await info_of()).system_sha256 is None


async def test_an_agent_info_holds_the_names_of_the_tools():
    """Section 12 "AgentInfo", claim 5."""
    assert (await info_of(tools=[picky, add])).tools == ("add", "picky")


def test_an_agent_info_holds_the_names_of_the_mcp_servers():
    """Section 12 "AgentInfo", claim 6."""
    state = then(said(), RunStartEntry, AgentInfo(mcp_servers=("github", "files")))

    assert state.history[-1].content.mcp_servers == ("files", "github")
    assert_replays(state)


async def test_a_side_question_records_no_request():
    """Section 12 "AgentInfo", claim 7."""
    state, talker = said(), agent("yes")

    await talker.ask(state, "Sure?")

    assert len(talker.model.requests) == 1
    assert "model_request" not in kinds(state)


async def test_a_compaction_records_no_request():
    """Section 12 "AgentInfo", claim 8."""
    state: State = said()
    talker = agent("They said go.")

    await talker.compact(state)

    assert len(talker.model.requests) == 1
    assert "model_request" not in kinds(state)
