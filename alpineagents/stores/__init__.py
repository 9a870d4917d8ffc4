"""Where entries rest: in memory for tests, in a folder of files for one machine."""

from ._files import FileStore
from ._memory import MemoryStore

__all__ = ["FileStore", "MemoryStore"]
