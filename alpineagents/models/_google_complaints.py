"""How Google's APIs say that something failed.

Source: Google's API design guide, errors (``google.rpc.Status``), and answers of the Gemini API (2026): a wrong key is
a 400 with the reason ``API_KEY_INVALID``, a delay stands in ``RetryInfo``, and a stream's error is a list of one.
"""

from __future__ import annotations

import re
from typing import Any

from ._json import loads, words
from ._openai_complaints import complaint_of_body as complaint_of_any_body
from ._openai_complaints import complaint_of_json as complaint_of_any_json
from ._wire import Complaint

_STATUSES = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
"""HTTP statuses of the codes, by ``google/rpc/code.proto``."""
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)s")


def complaint_of_body(body: bytes) -> tuple[Complaint, float | None]:
    """Return what the body of an error answer says, and the seconds it asks to wait."""
    try:
        document = loads(body)
    except ValueError:
        document = None
    return complaint_of_json(document) or (complaint_of_any_body(body), None)


def complaint_of_json(document: Any) -> tuple[Complaint, float | None] | None:
    """Return what an error document, or an event, says, and the seconds it asks to wait; None if it says nothing."""
    if isinstance(document, list) and document:
        document = document[0]
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or not isinstance(error.get("status"), str):
        complaint = complaint_of_any_json(document)  # Of a gateway between here and Google.
        return None if complaint is None else (complaint, None)
    details = error.get("details")
    details = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    reasons = [words(detail["reason"]) for detail in details if detail.get("reason")]
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else _STATUSES.get(error["status"])
    complaint = Complaint(
        message=words(error.get("message") or error["status"]),
        words=" ".join([error["status"], *reasons]),
        status=status,
    )
    delays = [seconds for detail in details if (seconds := _seconds(detail.get("retryDelay"))) is not None]
    return complaint, max(delays, default=None)


def _seconds(delay: object) -> float | None:
    """The seconds of a ``google.protobuf.Duration``, such as ``"7s"``; None for what isn't one, or is negative."""
    found = _DURATION.fullmatch(delay) if isinstance(delay, str) and len(delay) < 30 else None
    return float(found[1]) if found else None
