"""The arguments of tools that are made from data, held to their schema by jsonschema, where that is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .._contracts import Tool
from .._errors import ToolInputError
from ..record._frozen import FrozenDict
from ._misfit import Problem, problems_text

_LONGEST_MESSAGE = 300
"""Characters of what jsonschema says of one problem: it shows whole values."""


def check(tool: Tool, args: FrozenDict) -> None:
    """Refuse *args* that don't fit the tool's ``input_schema``.

    Nothing is fetched: a reference to another place is a mistake.

    Raises:
        ToolInputError: they don't fit; the message lists every problem, for the model to read.
        TypeError: the schema can't be used.
    """
    try:
        validators = import_module("jsonschema.validators")
        nowhere = import_module("referencing").Registry()
    except ModuleNotFoundError:
        return
    schema = tool.input_schema
    try:
        kind = validators.validator_for(schema, default=validators.Draft202012Validator)
        errors = list(kind(schema, registry=nowhere).iter_errors(args))
    except Exception as error:
        raise TypeError(f"the input_schema of tool {tool.name!r} can't be used: {error}") from error
    if errors:
        raise ToolInputError(problems_text([_problem(error) for error in errors], "arguments"))


def _problem(error: Any) -> Problem:
    said = error.message
    return Problem(
        tuple(error.absolute_path), said if len(said) <= _LONGEST_MESSAGE else f"{said[:_LONGEST_MESSAGE]}..."
    )
