"""What can go wrong, as one tree.

::

    AlpineAgentsError
     ├─ ProviderError            the provider, or the way to it
     │   ├─ AuthError            ├─ BadRequestError      ├─ BrokenStreamError
     │   ├─ ContextTooLongError  ├─ ModelNotFoundError   ├─ OverloadedError
     │   ├─ RateLimitError       └─ UnreachableError
     ├─ CutOffError              the output limit came before any text or tool call
     ├─ NoHumanError             there is nobody to ask (also a ValueError)
     ├─ OutputError              no answer of the type that ask() wanted
     ├─ ToolError                raised by a tool: the model reads it, the run goes on
     │   ├─ BudgetError          what the run may use is used up
     │   ├─ ToolInputError       the same, for arguments the tool can't use
     │   └─ WaitingForAnswerError  a person will answer later
     └─ StoreError
         ├─ ConflictError        somebody else wrote here
         ├─ CorruptStoreError    what is saved can't be read
         ├─ RunningElsewhereError (also a ValueError)
         └─ StateNotFoundError   (also a LookupError)

    ValueError
     └─ IllegalEntryError        this entry can't follow that history

    UserWarning
     ├─ PermissionWarning        no permission decided about a call, so it was refused
     └─ ResumeWarning            another Agent goes on with a saved State

A mistake of the caller is a TypeError or a ValueError, raised before anything is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final


class AlpineAgentsError(Exception):
    """Base of what this library raises for failures that aren't the caller's mistakes."""


class ProviderError(AlpineAgentsError):
    """A model provider failed, or couldn't be reached; the cause is in ``__cause__``.

    Args:
        message: What went wrong and how to mend it, in one or two lines.
        status: HTTP status code; ``None`` where no answer came. An error inside a stream has 200.
        request_id: The provider's own id of the request, for its support.
        body: An excerpt of the answer's body, at most 2,000 characters.
        provider: Name of the provider, such as ``"openai"``.
        retry_after: Seconds the provider asked to wait.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        body: str | None = None,
        provider: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.request_id = request_id
        self.body = body
        self.provider = provider
        self.retry_after = retry_after
        self.usage: object = None
        """Usage of the failed attempts, where tokens were spent; else None."""


class AuthError(ProviderError):
    """The key is missing, wrong or not allowed to do this (401, 403)."""


class BadRequestError(ProviderError):
    """The provider refused the request as malformed (400, 422)."""


class BrokenStreamError(ProviderError):
    """The answer ended, or went silent, before its terminal marker: it is no answer."""


class ContextTooLongError(ProviderError):
    """The conversation doesn't fit the model's context window."""


class ModelNotFoundError(ProviderError):
    """The provider has no model of this name, or the URL is not that of its API (404)."""


class OverloadedError(ProviderError):
    """The provider is up and asks to come back later (500, 502, 503, 529)."""


class RateLimitError(ProviderError):
    """Too many requests or tokens in too short a time (429)."""


class UnreachableError(ProviderError):
    """There is no connection to the provider."""


class CutOffError(AlpineAgentsError):
    """The output limit ended a reply before it held any text or tool call. The reply and its tokens are recorded."""


class NoHumanError(AlpineAgentsError, ValueError):
    """A person has to be asked, and the Agent has none: ``Agent(..., human=...)``."""


class OutputError(AlpineAgentsError):
    """The model gave no answer of the wanted type, after all retries."""

    usage: object = None
    """Usage of all its answers, which the State has counted, too."""


class ToolError(AlpineAgentsError):
    """Raise it in a tool to tell the model what failed: ``raise ToolError("no such file: a.txt")``."""


class BudgetError(ToolError):
    """The budget of the run is used up, so no request was sent. The run is set to stop, with ``StoppedByBudget``.

    It comes out of ``think``, ``ask`` and ``compact``. Let it go on: the run ends normally. A tool that asks a model is
    told so, too, and then its own model is.
    """


class ToolInputError(ToolError):
    """A ToolError about the arguments: the result's outcome is ``input_error``."""


@final
class WaitingForAnswerError(ToolError):
    """A person was asked, and will answer when the run is over.

    Args:
        question_id: What the question is answered by.
    """

    def __init__(self, question_id: str) -> None:
        super().__init__(f"(waiting for the answer to {question_id})")
        self.question_id = question_id

    def __reduce__(self) -> tuple[type[WaitingForAnswerError], tuple[str]]:
        return WaitingForAnswerError, (self.question_id,)


class StoreError(AlpineAgentsError):
    """A store couldn't save or load. Nothing that was recorded is lost: the State in memory is whole."""


class ConflictError(StoreError):
    """The store holds other entries at these positions than the State: two writers, or a foreign file."""


class CorruptStoreError(StoreError):
    """A saved history is damaged. The message names the place and what is still readable."""


class RunningElsewhereError(StoreError, ValueError):
    """Another run, in this process or elsewhere, holds the State."""


class StateNotFoundError(StoreError, LookupError):
    """The store has no State of this id."""


class IllegalEntryError(ValueError):
    """This entry can't follow what the history already holds."""


@final
class PermissionWarning(UserWarning):
    """A tool call was refused because no permission decided about it.

    Attributes:
        tool: The tool's name.
    """

    def __init__(self, tool: str) -> None:
        super().__init__(
            f"no permission decided about {tool}, so it was refused; end the list with AllowByDefault(), or name the"
            f" tool: permissions=[..., AllowByName({tool!r})]"
        )
        self.tool = tool

    def __reduce__(self) -> tuple[type[PermissionWarning], tuple[str]]:
        return PermissionWarning, (self.tool,)


@final
class ResumeWarning(UserWarning):
    """The Agent that continues a saved State differs from the one that ran it last.

    Attributes:
        changes: ``{field of AgentInfo: (saved value, current value)}`` for each difference.
    """

    def __init__(self, message: str, changes: Mapping[str, tuple[object, object]]) -> None:
        super().__init__(message)
        self.changes: dict[str, tuple[object, object]] = dict(changes)

    def __reduce__(self) -> tuple[type[ResumeWarning], tuple[str, dict[str, tuple[object, object]]]]:
        return ResumeWarning, (str(self), self.changes)
