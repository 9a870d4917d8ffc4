"""What all decoders share: how an answer fails, and when there is a reply. See ``_wire.Decoder``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from .._errors import BrokenStreamError, ModelNotFoundError, ProviderError
from ..record._messages import Reply, Usage
from ._openai_complaints import complaint_of_body, is_page
from ._wire import Complaint, Endpoint, Redact, broken, error_for, one_line


class Decoding(ABC):
    """The part of a Decoder that knows no format."""

    _END: ClassVar[str]
    """What the terminal marker is called in errors."""

    def __init__(self, endpoint: Endpoint, redacted: Redact = str) -> None:
        self.finished = False
        self.complete = False
        self.failure: ProviderError | None = None
        self._endpoint = endpoint
        self._redacted = redacted
        self._usage: dict[str, Any] = {}
        self._last = b""
        """What was taken last: it stands in the error, where it was one."""

    def _failed(self, complaint: Complaint, *, request_id: str | None = None, retry_after: float | None = None) -> None:
        """The answer is the error that it says itself."""
        self.failure = error_for(
            self._endpoint,
            complaint,
            status=None,
            body=self._last.decode(errors="replace"),
            request_id=request_id,
            retry_after=retry_after,
            redacted=self._redacted,
        )
        self.complete = True

    def _fail(self, kind: type[ProviderError], what: str) -> None:
        """The answer is none."""
        if self.failure is None:
            self.failure = broken(kind, self._endpoint, what, self._last, self._redacted)
        self.complete = True

    def _fail_if_page(self, body: bytes) -> bool:
        """Whether *body* is an HTML page, which is no answer."""
        if not is_page(body):
            return False
        said = complaint_of_body(self._redacted(body.decode(errors="replace")).encode()).message
        self._fail(ModelNotFoundError, f"sent {one_line(said)} - is the base URL right?")
        return True

    def usage(self) -> Usage | None:
        """Return the tokens spent, as far as they were told."""
        return self._counted() if self._usage else None

    def reply(self) -> Reply:
        """Return the reply; see ``_wire.Decoder``."""
        if self.failure is None and not self._is_whole():
            self._fail(BrokenStreamError, f"ended its answer before {self._END}: nothing of it is used")
        if self.failure is not None:
            raise self.failure
        return self._made()

    def _is_whole(self) -> bool:
        """Whether nothing is missing where the body ends here."""
        return self.finished

    @abstractmethod
    def _counted(self) -> Usage:
        """Return the tokens of the provider's ``usage``, zeros for what it doesn't say."""

    @abstractmethod
    def _made(self) -> Reply:
        """Return the reply, which is whole."""
