"""The terminal that a person sits at."""

try:
    import rich  # noqa: F401
except ImportError as error:
    raise ImportError("Terminal needs rich: pip install rich") from error

from ._terminal import Terminal

__all__ = ["Terminal"]
