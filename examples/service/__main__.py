"""The process: settings, socket, signals, and what is printed.

    python -m examples.service                                   a scripted model, conversations in conversations.db
    python -m examples.service --model openai/gpt-5-mini         a real one, with OPENAI_API_KEY
    python -m examples.service --model local                     the local model (make local-model builds it)
    python -m examples.service --store postgresql://host/db      many machines

SIGTERM or Ctrl+C stops it: what runs is finished within two seconds or saved as it is, and goes on at the next start.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import cast

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.typing import Framework

from alpineagents import AlpineAgentsError, Model, OpenAICompatible, State, Store, resolve_model
from alpineagents.stores import open_store

from .app import make_app
from .desk import desk
from .fake_model import FakeDesk
from .service import Service


def parsed() -> argparse.Namespace:
    """Return the command line; what it leaves out comes from the environment."""
    env = os.environ
    parser = argparse.ArgumentParser(
        prog="python -m examples.service", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default=env.get("SERVICE_HOST", "127.0.0.1"), help="where to listen")
    parser.add_argument("--port", type=port, default=env.get("SERVICE_PORT", "8000"), help="0 takes a free one")
    parser.add_argument(
        "--store",
        default=env.get("SERVICE_STORE", "conversations.db"),
        help="FILE.db, or postgresql://host/database?schema=NAME",
    )
    parser.add_argument("--model", default=env.get("SERVICE_MODEL", "fake"), help="fake, local, or provider/name")
    parser.add_argument("--fake-delay", type=float, default=0.05, help="seconds that the fake model takes for a word")
    parser.add_argument("--at-once", type=count, default=64, help="how many runs are on at the same time")
    parser.add_argument(
        "--stop-seconds", type=float, default=9.0, help="the most that a stop takes; docker kills after ten"
    )
    return parser.parse_args()


def port(text: str) -> int:
    """Return a port's number."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 65535 (got {text!r})")
    return int(text)


def count(text: str) -> int:
    """Return a number of things, 1 or more."""
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"must be a number from 1 on (got {text!r})")
    return int(text)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket at that address; SystemExit with a line where it is taken."""
    try:
        return socket.create_server((host, port), backlog=1024)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else "no such host"
        sys.exit(f"error: can't listen at {host}:{port}: {why}; try --port 0, which takes a free one")


@contextmanager
def chosen_model(args: argparse.Namespace) -> Iterator[Model]:
    """Yield the model that the settings name."""
    if args.model == "fake":
        yield FakeDesk(args.fake_delay)
    elif args.model == "local":
        sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
        local_model = import_module("local_model")
        try:
            with local_model.serving() as base_url:
                yield OpenAICompatible(local_model.MODEL, base_url=base_url, max_tokens=80, temperature=0)
        except local_model.LocalModelError as error:
            sys.exit(f"error: {error}")
    else:
        yield resolve_model(args.model)


async def main(args: argparse.Namespace, model: Model, store: Store, sock: socket.socket) -> None:
    """Serve until a signal comes."""
    await store.list(limit=1)  # what is wrong with the store is said now, not to the first client
    host, port = sock.getsockname()[:2]
    show(f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}", args.store, model)
    service = Service(store, partial(desk, model), at_once=args.at_once)
    config = Config()
    config.bind = [f"fd://{sock.detach()}"]
    config.backlog = 1024
    config.errorlog = logging.getLogger("hypercorn")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop_on_signal, service, args.stop_seconds)
        app = cast("Framework", make_app(service))  # the two have types of their own for the same ASGI
        await serve(app, config, shutdown_trigger=service.stopping.wait)
        nursery.cancel_scope.cancel()


async def stop_on_signal(service: Service, most_seconds: float) -> None:
    """Have the service stop when a signal says so, and end the process if that takes too long."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            service.stopping.set()
            break
        await trio.sleep(most_seconds)
        # Somebody has a connection and doesn't read, and what the server sends can't be cancelled; or the store hangs.
        logging.shutdown()
        os._exit(0 if service.ended.is_set() else 1)


def show(address: str, store: str, model: Model) -> None:
    """Print what to try, from another shell."""
    name = f"talk-{State().id[-6:]}"
    print(
        f"""The service listens at {address}, model {model.name}, conversations in {store.partition("://")[0]}.
Try, from another shell:

  curl -s {address}/conversations -H 'Content-Type: application/json' -H 'Idempotency-Key: first' \
-d '{{"id": "{name}", "message": "Please refund order 7"}}'
  curl -sN {address}/conversations/{name}/events
  curl -s {address}/approvals

The second goes on until Ctrl+C. Each approval says where its answer goes: POST {{"answer": "yes"}} there.
""",
        flush=True,
    )


if __name__ == "__main__":
    settings = parsed()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.captureWarnings(True)
    for logger in ("alpineagents", "hypercorn", "service"):
        logging.getLogger(logger).setLevel(logging.INFO)
    try:
        with chosen_model(settings) as chosen, bound(settings.host, settings.port) as listener:
            trio.run(main, settings, chosen, open_store(settings.store), listener)
    except (AlpineAgentsError, ValueError, ImportError) as failure:
        sys.exit(f"error: {failure}")
    except KeyboardInterrupt:  # before it listens; after that it is a stop like another
        sys.exit(130)
