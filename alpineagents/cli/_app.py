"""The commands, put together: names, help, and what is said of a command line that is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Group, Parameter
from cyclopts.exceptions import (
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from . import _chat, _doctor, _list, _replay, _run, _show, _store
from ._doctor import installed_version
from ._exit import UsageError
from ._options import MODEL_VARIABLES, RAN, STORE_VARIABLES, ending

_TALK: Final = Group("Talk to agents", sort_key=1)
_LOOK: Final = Group("Look at what they did", sort_key=2)
_SET_UP: Final = Group("Set up", sort_key=3)
_COMMON: Final = Group("Common options", sort_key=9)

app: Final = App(
    name="alpineagents",
    help="Run LLM agents, talk to them, and look at what they did.\n\nA conversation is a State. It is saved with every"
    " step, so it survives Ctrl+C, a crash and a restart.",
    usage="Usage: alpineagents COMMAND [OPTIONS]",
    version=lambda: f"alpineagents {installed_version('alpineagents') or 'from its source'}",
    help_format="plaintext",
    default_parameter=Parameter(negative="", show_default=False),
    group_parameters=Group("Options", sort_key=5),
    help_epilogue=ending(
        'alpineagents run --model anthropic/claude-sonnet-5 "Name three rivers"',
        "alpineagents chat --tools app.tools:read_file",
        "alpineagents chat --resume",
        "alpineagents list",
        "alpineagents COMMAND --help",
        variables=(*MODEL_VARIABLES, *STORE_VARIABLES),
        codes=RAN,
    ),
)
store: Final = App(
    name="store",
    help="Look after a store: list, show, check, copy and export.\n\nIt may be in use meanwhile.",
    usage="Usage: alpineagents store COMMAND [OPTIONS]",
    help_epilogue=ending("alpineagents store check runs.db", "alpineagents store COMMAND --help"),
    group=_LOOK,
)


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell.")], /) -> None:
    """Print the script that completes commands in a shell.

    bash: put the line below into ~/.bashrc. zsh: write the file into a folder of $fpath, before compinit runs. fish:
    write the file. Then start the shell anew.
    """
    print(app.generate_completion(shell=shell))


_COMPLETION: Final = ending(
    'eval "$(alpineagents completion bash)"',
    "alpineagents completion zsh > ~/.zfunc/_cyclopts_alpineagents",
    "alpineagents completion fish > ~/.config/fish/completions/alpineagents.fish",
)


def _add(parent: App, command: Callable[..., Any], usage: str, end: str, group: Group | None = None) -> None:
    """Add a command; *usage* begins with its name. Commands are shown in the order in which they are added."""
    name = usage.split()[0]
    parent.command(
        command,
        name=name,
        usage=f"Usage: {' '.join(dict.fromkeys(('alpineagents', parent.name[0])))} {usage}",
        help=_paragraphs(command.__doc__ or ""),
        help_epilogue=end,
        group=group,
        sort_key=len(list(parent)),
    )


def _paragraphs(doc: str) -> str:
    """Return a docstring with a line per paragraph: it is broken anew, for the width of the terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in doc.split("\n\n"))


_add(app, _run.run, "run [OPTIONS] [PROMPT]", _run.EPILOGUE, _TALK)
_add(app, _chat.chat, "chat [OPTIONS] [ID]", _chat.EPILOGUE, _TALK)
_add(app, _list.list_states, "list [OPTIONS]", _list.EPILOGUE, _LOOK)
_add(app, _show.show, "show [OPTIONS] [ID]", _show.SHOW_EPILOGUE, _LOOK)
_add(app, _show.tail, "tail [OPTIONS] [ID]", _show.TAIL_EPILOGUE, _LOOK)
_add(app, _replay.replay_state, "replay [OPTIONS] STORE ID MODULE:AGENT", _replay.EPILOGUE, _LOOK)
store.sort_key = len(list(app))
app.command(store)
_add(store, _store.list_states, "list [OPTIONS] STORE", _store.EPILOGUES["list"])
_add(store, _store.show_state, "show STORE ID", _store.EPILOGUES["show"])
_add(store, _store.check_states, "check STORE [ID...]", _store.EPILOGUES["check"])
_add(store, _store.copy_states, "copy SOURCE TARGET [ID...]", _store.EPILOGUES["copy"])
_add(store, _store.export_state, "export [OPTIONS] STORE ID", _store.EPILOGUES["export"])
_add(app, _doctor.doctor, "doctor [OPTIONS]", _doctor.EPILOGUE, _SET_UP)
_add(app, completion, "completion SHELL", _COMPLETION, _SET_UP)
for _flag, _what in (("--help", "Show this, or the help of a command."), ("--version", "Show the version.")):
    app[_flag].group, app[_flag].help = (_COMMON,), _what


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    traceback: Annotated[bool, Parameter(group=_COMMON, help="Show where in the code an error came from.")] = False,
) -> None:
    """Hold what every command takes."""


def parsed(tokens: Sequence[str]) -> tuple[Callable[[], object], bool]:
    """Return what a command line says to do, and whether errors are shown with their traceback.

    Raises:
        UsageError: it says nothing that can be done.
    """
    try:
        first, bound, _ = app.meta.parse_args(_stdin_last(tokens), print_error=False, exit_on_error=False)
        if first is not _launch:  # --help, --version
            return partial(first, *bound.args, **bound.kwargs), False
        shows_traceback = bool(bound.kwargs.get("traceback"))
        command, bound, _ = app.parse_args(bound.args, print_error=False, exit_on_error=False)
        return partial(command, *bound.args, **bound.kwargs), shows_traceback
    except CycloptsError as error:
        raise UsageError(_complaint(error)) from error


def _stdin_last(tokens: Sequence[str]) -> list[str]:
    """Return *tokens* with a ``-`` behind ``--``: in front it would be taken as an option without a name."""
    if "-" not in tokens or "--" in tokens:
        return list(tokens)
    return [*(token for token in tokens if token != "-"), "--", *(token for token in tokens if token == "-")]


def _complaint(error: CycloptsError) -> str:
    """Return what is wrong with a command line and where the right one is explained, in one line."""
    chain = " ".join(["alpineagents", *(error.command_chain or ())])
    match error:
        case UnusedCliTokensError(unused_tokens=[unused, *_]):
            text = f"{chain} takes no argument {unused!r:.80}; put quotes around what belongs together."
        case UnknownOptionError(token=token) if " " in token.value:
            text = f"{chain} has no option {token.value!r:.80}; put -- before an argument that begins with a dash."
        case MissingArgumentError(keyword=str(option)):
            text = f"{chain}: {option} needs a value."
        case MissingArgumentError(argument=argument) if argument is not None:
            text = f"{chain} needs {argument.name}."
        case UnknownCommandError(unused_tokens=[unused, *_]) if unused.startswith("-"):
            text = f"Unknown option: {unused}."
        case _:
            text = str(error)
    return f"{text} See {chain} --help"
