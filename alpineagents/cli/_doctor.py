"""``alpineagents doctor``: is everything there that a run needs, and what to do where it isn't."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import attrs
import trio
from cyclopts import Parameter

from .._contracts import Model
from .._errors import AlpineAgentsError
from ..state import State
from ..state._show import one_line
from ..stores import open_store
from ._agent import KEYS, MODEL_VARIABLE
from ._exit import ANSWER, ERROR
from ._options import MODEL_VARIABLES, SIGNALS, STORE_VARIABLES, StorePlace, ending
from ._place import store_name

EPILOGUE: Final = ending(
    "alpineagents doctor",
    "alpineagents doctor --offline",
    variables=(*MODEL_VARIABLES, *STORE_VARIABLES),
    codes=f"0 it can work, 1 something is wrong, 2 wrong command line, {SIGNALS}",
)

_NEEDED: Final = ("trio", "attrs", "cattrs", "httpx", "orjson")
_EXTRAS: Final = {
    "fleet": ("dbos",),
    "http2": ("h2",),
    "mcp": ("mcp",),
    "otel": ("opentelemetry-api",),
    "postgres": ("psycopg",),
    "prices": ("genai-prices",),
    "schema": ("jsonschema",),
    "terminal": ("cyclopts", "rich"),
    "view": ("hypercorn", "jinja2", "starlette"),
}
_SERVERS: Final = {
    "ANTHROPIC_BASE_URL": "anthropic/NAME",
    "OPENAI_BASE_URL": "compatible/NAME",
    "GEMINI_BASE_URL": "google/NAME",
    "GOOGLE_GEMINI_BASE_URL": "google/NAME",
}
"""Variables that name another server than the provider's, each with the kind of model that goes there."""
_REACH_SECONDS: Final = 5.0
_STORE_SECONDS: Final = 15.0
_MARKS: Final = {"good": "ok", "note": "--", "bad": "!!"}


@attrs.frozen
class Finding:
    """Something that was looked at."""

    how: Literal["good", "note", "bad"]
    """``bad``: nothing will work like this; ``note``: it may well be meant so."""
    text: str


async def doctor(
    *,
    store: StorePlace = None,
    offline: Annotated[bool, Parameter(help="Connect to nobody.")] = False,
) -> int:
    """Say what is installed, which keys are set, whether the providers can be reached and the store written to.

    Keys are never shown, not even in part. A provider is reached when it answers, whatever it says: no key is sent and
    nothing is paid. To try the store, a State is saved there and removed. A line that begins with !! says what is wrong
    and what to do, and then the exit code is 1; one that begins with -- may be meant so.
    """
    findings = [*_installed(), *_settings()]
    for finding in findings:
        _say(finding)
    async for finding in _tried(store_name(store), offline):
        _say(finding)
        findings.append(finding)
    return ERROR if any(finding.how == "bad" for finding in findings) else ANSWER


def _say(finding: Finding) -> None:
    print(f"{_MARKS[finding.how]}  {one_line(finding.text)}", flush=True)


def installed_version(package: str) -> str | None:
    """Return the version of a package; ``None`` where it isn't installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _installed() -> Iterator[Finding]:
    yield Finding("good", f"Python {platform.python_version()} at {sys.executable}")
    own = installed_version("alpineagents")
    yield Finding("good", f"alpineagents {own}") if own else Finding("note", "alpineagents is run from its source")
    yield Finding("good", ", ".join(f"{name} {installed_version(name)}" for name in _NEEDED))
    for extra, packages in _EXTRAS.items():
        missing = [name for name in packages if installed_version(name) is None]
        if missing:
            yield Finding("note", f"extra {extra} is not installed; where you want it: pip install {' '.join(missing)}")
        else:
            yield Finding(
                "good", f"extra {extra}: {', '.join(f'{name} {installed_version(name)}' for name in packages)}"
            )


def _settings() -> Iterator[Finding]:
    from ..models._settings import api_key

    for name in KEYS:
        try:
            is_set = bool(api_key(os.environ.get(name)))
        except ValueError as error:
            yield Finding("bad", f"{name}: {error}")
            continue
        yield Finding("good", f"{name} is set") if is_set else Finding("note", f"{name} is not set")
    for name in _SERVERS:
        if os.environ.get(name):
            yield Finding("good", f"{name} is set")
    model = os.environ.get(MODEL_VARIABLE)
    if model:
        try:
            yield Finding("good", f"{MODEL_VARIABLE} names the default model: {_model(model).name}")
        except ValueError as error:
            yield Finding("bad", f"{MODEL_VARIABLE}: {error}")
    else:
        yield Finding("note", f"{MODEL_VARIABLE} is not set, so --model has to name the model")
    if not model and not any(os.environ.get(name) for name in (*KEYS, *_SERVERS)):
        yield Finding(
            "bad", f"there is no provider to ask: set {' or '.join(KEYS)}, or OPENAI_BASE_URL for a server of your own"
        )


def _model(name: str) -> Model:
    from ..models import resolve_model  # httpx comes with it

    return resolve_model(name)


async def _tried(store: str, offline: bool) -> AsyncIterator[Finding]:
    """Try what can only be tried."""
    for url in _urls():
        if isinstance(url, Finding):
            yield url
        elif offline:
            yield Finding("note", f"{urlsplit(url).netloc} was not tried (--offline)")
        else:
            yield await _reached(url)
    yield await _written(store)


def _urls() -> list[str | Finding]:
    """Return where requests would go, each once: to whom there is a key, a server, or a default model for."""
    names = [example for name, example in (KEYS | _SERVERS).items() if os.environ.get(name)]
    if model := os.environ.get(MODEL_VARIABLE):
        names.append(model)
    found: dict[str | Finding, None] = {}
    for name in names:
        try:
            found[str(getattr(_model(name), "base_url", ""))] = None
        except ValueError as error:
            if name != model:  # of that it is said already
                found[Finding("bad", str(error))] = None
    return [url for url in found if url]


async def _reached(url: str) -> Finding:
    from httpx import HTTPError, InvalidURL

    from ..models._client import new_client

    host = urlsplit(url).netloc
    start = trio.current_time()
    try:
        with trio.fail_after(_REACH_SECONDS):
            async with new_client(url) as client:
                answer = await client.get(url)
    except trio.TooSlowError:
        return Finding("bad", f"{host} did not answer in {_REACH_SECONDS:.0f} s; is the network, or the server, up?")
    except (HTTPError, InvalidURL, OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        return Finding("bad", f"{host} can't be reached: {reason}; look at the network, HTTPS_PROXY and the URL")
    seconds = trio.current_time() - start
    return Finding("good", f"{host} answers ({seconds:.2f} s, HTTP {answer.status_code})")


async def _written(where: str) -> Finding:
    shown = where.partition("@")[2] or where  # no password
    try:
        with trio.fail_after(_STORE_SECONDS):
            async with open_store(where) as store:
                state = State(extra_data={"written by": "alpineagents doctor"})
                await store.save(state)
                await store.remove(state.id)
    except trio.TooSlowError:
        return Finding("bad", f"the store {shown} did not answer in {_STORE_SECONDS:.0f} s")
    except (AlpineAgentsError, OSError, ValueError, ImportError) as error:
        return Finding("bad", f"the store {shown} can't be written: {error}; name another with --store")
    return Finding("good", f"the store {shown} can be written")
