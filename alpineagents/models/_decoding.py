"""What all decoders share: how an answer fails, when there is a reply, what is shown. See ``_wire.Decoder``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from .._errors import BrokenStreamError, ModelNotFoundError, ProviderError
from ..record._blocks import clean_text
from ..record._messages import Reply, Usage
from ._json import loads
from ._openai_complaints import complaint_of_body, is_page
from ._wire import Complaint, Delta, Endpoint, Redact, broken, error_for, one_line


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
        self._sloppy = False
        """Whether JSON came that orjson refused: only that holds surrogates."""
        self._halves: dict[type[Delta], str] = {}
        """High surrogates whose low one may come with the next piece."""
        self._last = b""
        """What was taken last: it stands in the error, where it was one."""

    def feed_document(self, body: bytes) -> list[Delta]:
        """Take an answer that is no event stream."""
        deltas: list[Delta] = []
        self._last = body
        try:
            document = loads(body)
        except ValueError:
            document = None
        self._sloppy = True
        if not self._take_document(document, deltas) and not self._fail_if_page(body):
            self._complain(document)
        return deltas

    def _show(self, kind: type[Delta], piece: str, deltas: list[Delta]) -> None:
        """Add a delta for what can be shown of *piece*: half a character waits for its other half."""
        if piece and self._sloppy:
            piece = self._halves.pop(kind, "") + piece
            if "\ud800" <= piece[-1] <= "\udbff":
                piece, self._halves[kind] = piece[:-1], piece[-1]
            piece = clean_text(piece)
        if piece:
            deltas.append(kind(piece))

    def _flush(self, deltas: list[Delta]) -> None:
        """Show the halves that no other half came to."""
        if self._halves:
            deltas += [kind(clean_text(half)) for kind, half in self._halves.items()]
            self._halves = {}

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
    def _take_document(self, document: object, deltas: list[Delta]) -> bool:
        """Take the JSON of a whole answer, ``None`` where it is none; return whether it is one."""

    @abstractmethod
    def _complain(self, document: object) -> None:
        """Fail with what an error document says, if it is one."""

    @abstractmethod
    def _counted(self) -> Usage:
        """Return the tokens of the provider's ``usage``, zeros for what it doesn't say."""

    @abstractmethod
    def _made(self) -> Reply:
        """Return the reply, which is whole."""
