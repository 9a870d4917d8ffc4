"""What a folder holds: the ids of its States, and the info of each from the end of its log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ..record._json import dumps
from ._lines import WHOLE_INFO_EVERY, Info, find_info
from ._rules import Listed, created_at, is_id

SUFFIX: Final = ".jsonl"

_FIRST_READ: Final = WHOLE_INFO_EVERY + 4 * 1024  # Has a whole info in it, unless lines are long.


def state_ids(folder: Path) -> list[str]:
    """Return the ids of the States in *folder*, in no order; none if there is no such folder."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    ids = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return [state_id for state_id in ids if is_id(state_id)]


def listed_states(folder: Path) -> tuple[list[Listed], list[str]]:
    """Return all States of *folder*, in no order, and what is wrong with those that had to be left out."""
    found: list[Listed] = []
    faults: list[str] = []
    for state_id in state_ids(folder):
        path = folder / f"{state_id}{SUFFIX}"
        try:
            info = read_info(path)
        except FileNotFoundError:
            continue  # deleted meanwhile
        except (OSError, ValueError) as error:
            faults.append(f"{path} is left out of the list: {error}")
            continue
        found.append(Listed(state_id, dumps(info), created_at(info)))
    return found, faults


def read_info(path: Path) -> Info:
    """Return the info of a log. Reads from its end, only as much as that takes.

    Raises:
        OSError: the file can't be read.
        ValueError: it is damaged, as far as can be seen there; the message says how.
    """
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        length = _FIRST_READ
        while True:
            start = max(0, size - length)
            file.seek(start)
            info = find_info(file.read(size - start), is_all=start == 0)
            if info is not None:
                return info
            length *= 4
