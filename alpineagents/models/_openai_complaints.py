"""The many forms in which servers that speak OpenAI's API say that something failed."""

from __future__ import annotations

import html
import re
from typing import Any

from ._json import loads, words
from ._wire import Complaint


def complaint_of_body(body: bytes) -> Complaint:
    """Return what the body of an error answer says, JSON or not."""
    text = body.decode(errors="replace").strip()
    try:
        document = loads(text)
    except ValueError:
        return Complaint(message=_of_page(text))
    return complaint_of_json(document) or Complaint(message=text)


def is_page(body: bytes) -> bool:
    """Whether *body* is an HTML page: what stands at the URL is no API."""
    start = body.lstrip()[:15].lower()
    return start.startswith((b"<!doctype html", b"<html"))


def _of_page(text: str) -> str:
    if not text.startswith("<"):
        return text
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    return f"an HTML page, not JSON: {html.unescape(title[1]) if title else text[:100]}"


def complaint_of_json(document: Any) -> Complaint | None:
    """Return what an error document says; None if it isn't one.

    Forms: ``{"error": {"message", "type", "code"}}`` (OpenAI and most), ``{"error": "text"}`` (Ollama),
    ``{"object": "error", "message", "type", "code"}`` (Mistral, older vLLM), ``[{"error": ...}]`` (Gemini),
    ``{"detail": ...}`` (FastAPI), ``{"message": ...}`` (gateways).
    """
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if isinstance(error, dict):
        return _complaint(error)
    if isinstance(error, str) and error:
        return _complaint({**document, "message": document.get("message") or error})
    if document.get("message") or document.get("detail"):
        return _complaint(document)
    return None


def complaint_of_event(chunk: dict[str, Any], name: str) -> Complaint | None:
    """Return the error that an event of a stream is; None for any other event."""
    if chunk.get("error") or chunk.get("object") == "error":
        return complaint_of_json(chunk) or Complaint(message=words(chunk.get("error")))
    if name == "error":
        return complaint_of_json(chunk) or Complaint(message=words(chunk))
    return None


def _complaint(error: dict[str, Any]) -> Complaint:
    message = words(error.get("message") or error.get("detail") or error)
    metadata = error.get("metadata")  # OpenRouter: what the provider behind it said
    if isinstance(metadata, dict) and metadata.get("raw"):
        message = f"{message} ({words(metadata['raw'])})"
    if error.get("n_ctx"):  # llama.cpp: the numbers, whatever the text says
        message = f"{message} (n_prompt_tokens {words(error.get('n_prompt_tokens'))}, n_ctx {words(error['n_ctx'])})"
    said = [words(error[key]) for key in ("code", "type") if error.get(key) is not None]
    statuses = [_status(error.get(key)) for key in ("code", "status_code", "status")]
    return Complaint(
        message=message, words=" ".join(said), status=next((status for status in statuses if status), None)
    )


def _status(value: object) -> int | None:
    if isinstance(value, str) and len(value) == 3 and value.isascii() and value.isdigit():
        value = int(value)
    return value if isinstance(value, int) and 400 <= value <= 599 else None
