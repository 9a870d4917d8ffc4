"""What messages are made of: text, images, files, thinking, tool calls and their results."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self, TypeAlias, final, get_args

import attrs

from ._frozen import FrozenDict, Json, freeze, freeze_dict, joined, joined_or_none
from ._value import Value


def clean_text(text: str) -> str:
    """Return *text* with lone surrogates, which no UTF-8 can hold, replaced by U+FFFD; pairs become their character.

    Raises:
        TypeError: it isn't a ``str``.
    """
    if type(text) is not str:
        if not isinstance(text, str):
            raise TypeError(f"text must be str, not {type(text).__name__}: {text!r:.80}")
        text = str.__str__(text)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def flag(value: bool) -> bool:
    """Return *value*; TypeError where it isn't True or False, which alone come back from JSON as they were."""
    if value is True or value is False:
        return value
    raise TypeError(f"{value!r:.80} is not True or False")


@final
@attrs.frozen(eq=False, repr=False)
class TextBlock(Value):
    """Text.

    Raises:
        TypeError: *text* isn't a ``str``.
    """

    text: str = attrs.field(converter=clean_text)
    """Any characters, NUL included; lone surrogates, which no UTF-8 can hold, are replaced by U+FFFD."""


# How such files begin: PNG (ISO/IEC 15948, 5.2), JPEG (ITU-T T.81, B.2.1: SOI, then a marker), GIF (GIF89a, 17), and
# WebP (RFC 9649, 2.4: a RIFF container, with its length in between). Types are those of the IANA registry (RFC 6838).
_IMAGE_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def _as_bytes(data: object) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(
            f"data must be bytes, not {type(data).__name__}; from text use from_base64, from a file from_path"
        )
    return bytes(data)


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"not base64: {error}") from None


def _sniff_image(image: Image) -> str:
    data = image.data
    for magic, media_type in _IMAGE_MAGIC:
        if data.startswith(magic):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError(f"not a PNG, JPEG, GIF or WebP image: {len(data)} bytes that start with {data[:12]!r}")


@final
@attrs.frozen(eq=False, repr=False)
class Image(Value):
    """A PNG, JPEG, GIF or WebP picture.

    Args:
        data: The file's bytes. ``media_type`` is found from the first of them; the rest isn't looked at.

    Raises:
        TypeError: *data* isn't bytes.
        ValueError: the bytes are none of these formats.
    """

    data: bytes = attrs.field(converter=_as_bytes, repr=lambda data: f"<{len(data)} B>")
    """The file's bytes. ``repr`` shows their number only; as JSON they are base64 (RFC 4648, section 4)."""
    media_type: str = attrs.field(init=False, default=attrs.Factory(_sniff_image, takes_self=True))
    """``image/png``, ``image/jpeg``, ``image/gif`` or ``image/webp``."""

    @classmethod
    def from_path(cls, path: str | Path) -> Self:
        """Read the picture at *path*. Blocks while it reads.

        Raises:
            OSError: the file can't be read.
            ValueError: it is no such picture.
        """
        return cls(Path(path).read_bytes())

    @classmethod
    def from_base64(cls, text: str) -> Self:
        """Take the picture from base64 *text* (RFC 4648, section 4), in one piece: no line breaks, no ``data:`` URL.

        Raises:
            ValueError: it isn't base64, or no such picture.
        """
        return cls(_from_base64(text))


_PDF = b"%PDF-"  # ISO 32000-2, 7.5.2


def _sniff_file(file: File) -> str:
    return "application/pdf" if file.data.startswith(_PDF) else "text/plain"


@final
@attrs.frozen(eq=False, repr=False)
class File(Value):
    """A document that a provider can read: a PDF, or UTF-8 text.

    Args:
        data: The file's bytes.
        media_type: ``application/pdf`` or a ``text/...`` type (RFC 6838); found from the bytes when left out.
        name: What the model may call it.

    Raises:
        TypeError: *data* isn't bytes, or another field no text.
        ValueError: the bytes are neither PDF nor UTF-8 text, or *media_type* is of another kind.
    """

    data: bytes = attrs.field(converter=_as_bytes, repr=lambda data: f"<{len(data)} B>")
    """The file's bytes. ``repr`` shows their number only; as JSON they are base64 (RFC 4648, section 4)."""
    media_type: str = attrs.field(default=attrs.Factory(_sniff_file, takes_self=True), converter=joined)
    """``application/pdf``, ``text/plain``, or another ``text/...`` type that was given."""
    name: str = attrs.field(default="document", converter=clean_text)
    """What the model may call it."""

    def __attrs_post_init__(self) -> None:
        if self.media_type != "application/pdf" and not self.media_type.startswith("text/"):
            raise ValueError(f"media_type {self.media_type!r}: use 'application/pdf' or a 'text/...' type")
        start = f"{len(self.data)} bytes that start with {self.data[:12]!r}"
        if self.media_type == "application/pdf":
            if not self.data.startswith(_PDF):
                raise ValueError(f"not a PDF: {start}")
            return
        try:
            self.data.decode()
        except UnicodeDecodeError:
            raise ValueError(f"neither a PDF nor UTF-8 text: {start}") from None

    @classmethod
    def from_path(cls, path: str | Path) -> Self:
        """Read the document at *path*; its name is the file's. Blocks while it reads.

        Raises:
            OSError: the file can't be read.
            ValueError: it is neither a PDF nor UTF-8 text.
        """
        return cls(Path(path).read_bytes(), name=Path(path).name)

    @classmethod
    def from_base64(cls, text: str, *, name: str = "document") -> Self:
        """Take the document from base64 *text* (RFC 4648, section 4), in one piece.

        Raises:
            ValueError: it isn't base64, or neither a PDF nor UTF-8 text.
        """
        return cls(_from_base64(text), name=name)


def _freeze_args(args: object) -> FrozenDict | None:
    return None if args is None else freeze_dict(args, "args")


@final
@attrs.frozen(eq=False, repr=False)
class ToolCall(Value):
    """The model asks for a tool.

    Raises:
        TypeError: *args* is no dict, or holds something that isn't JSON; or another field is no text.
        ValueError: *args* is circular or too deep; see ``freeze``.
    """

    id: str = attrs.field(converter=joined)
    """Unique within the State."""
    name: str = attrs.field(converter=joined)
    """The tool's name, as the model wrote it: there may be no such tool."""
    args: FrozenDict | None = attrs.field(converter=_freeze_args)
    """The arguments, a read-only dict; ``None`` where the model's JSON was malformed or cut off."""
    raw_args: str | None = attrs.field(default=None, converter=joined_or_none)
    """The model's text where *args* is ``None``."""


ResultBlock: TypeAlias = TextBlock | Image | File
"""What a tool's result can hold."""


_RESULT_TYPES = frozenset(get_args(ResultBlock))


def as_results(blocks: Iterable[ResultBlock]) -> tuple[ResultBlock, ...]:
    """Return *blocks* as a tuple; TypeError where one is something else."""
    made = tuple(blocks)
    for block in made:
        if type(block) not in _RESULT_TYPES:
            raise TypeError(f"a result holds TextBlock, Image and File, not {type(block).__name__}: {block!r:.80}")
    return made


@final
@attrs.frozen(eq=False, repr=False)
class ToolResultBlock(Value):
    """What a tool call gave, as the model reads it.

    Raises:
        TypeError: *content* holds something else than TextBlock, Image and File.
    """

    call_id: str = attrs.field(converter=joined)
    """``ToolCall.id`` of the call."""
    content: tuple[ResultBlock, ...] = attrs.field(converter=as_results)
    """Text, images and files, in order; it may be empty."""
    is_error: bool = attrs.field(default=False, converter=flag)
    """Whether the model is told that the call failed."""


def _freeze_raw(raw: object) -> Json:
    return freeze(raw, "raw")


@final
@attrs.frozen(eq=False, repr=False)
class ThinkingBlock(Value):
    """A model's reasoning. It goes back to the provider that wrote it, unchanged, and to no other."""

    text: str = attrs.field(converter=clean_text)
    """The reasoning, as far as the provider shows it; it may be empty."""
    signature: str | None = attrs.field(default=None, converter=joined_or_none)
    """What the provider knows its own block by; ``None`` where it gave none."""
    provider: str | None = attrs.field(default=None, converter=joined_or_none)
    """Name of the provider that wrote it, such as ``"openai"``; ``None`` = it goes back to none."""
    raw: Json = attrs.field(default=None, converter=_freeze_raw)
    """The provider's own block, where it has more than text and signature."""


@final
@attrs.frozen(eq=False, repr=False)
class RawBlock(Value):
    """Any other block of one provider, kept and sent back to that provider as it came."""

    provider: str = attrs.field(converter=joined)
    """Name of the provider that wrote it, such as ``"openai"``."""
    raw: Json = attrs.field(converter=_freeze_raw)
    """The block, in JSON form."""


Block: TypeAlias = TextBlock | Image | File | ToolCall | ToolResultBlock | ThinkingBlock | RawBlock
"""What a message can hold."""


_BLOCK_TYPES = frozenset(get_args(Block))


def as_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return *blocks* as a tuple; TypeError where one is something else."""
    made = tuple(blocks)
    for block in made:
        if type(block) not in _BLOCK_TYPES:
            raise TypeError(
                f"a message holds blocks, such as TextBlock, not {type(block).__name__}: {block!r:.80}; "
                "make it with Message.user('...')"
            )
    return made


def is_blank(block: Any) -> bool:
    """Whether *block* is text without anything to see in it."""
    return type(block) is TextBlock and (not block.text or block.text.isspace())
