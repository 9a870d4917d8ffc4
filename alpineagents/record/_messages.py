"""What goes to a model and comes back: messages, requests, replies, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, Self, TypeAlias, final

import attrs

from ._blocks import Block, File, Image, TextBlock, ToolCall, as_blocks, clean_text
from ._frozen import FrozenDict, freeze_dict, joined, joined_or_none
from ._value import Value

Role: TypeAlias = Literal["user", "assistant", "tool"]

NOTICE = "[notice] "
SUMMARY = "[summary of the conversation so far] "


def _text_blocks(text: str, others: tuple[Block, ...]) -> tuple[Block, ...]:
    clean = clean_text(text)
    if clean and not clean.isspace():
        return (TextBlock(clean), *others)
    if not others:
        raise ValueError(f"a message needs text or an image (got text {text!r}): Message.user('Find the bug')")
    return others


@final
@attrs.frozen(eq=False, repr=False)
class Message(Value):
    """One message of the conversation, as the model sees it."""

    role: Role = attrs.field(validator=attrs.validators.in_(("user", "assistant", "tool")))
    blocks: tuple[Block, ...] = attrs.field(converter=as_blocks)
    cut_off: bool = False
    """The output limit ended this reply."""

    @classmethod
    def user(cls, text: str, *attachments: Image | File) -> Self:
        """Return a message from the person: text, then images or files.

        Raises:
            TypeError: *text* isn't a ``str``, or an attachment neither Image nor File.
            ValueError: the text is blank and nothing is attached.
        """
        for item in attachments:
            if not isinstance(item, Image | File):
                raise TypeError(
                    f"attach Image or File, not {type(item).__name__}: Message.user(text, Image.from_path('a.png'))"
                )
        return cls("user", _text_blocks(text, attachments))

    @classmethod
    def notice(cls, text: str) -> Self:
        """Return a message from your code. The model sees the text behind the prefix ``[notice]``.

        Raises:
            TypeError: *text* isn't a ``str``.
            ValueError: the text is blank.
        """
        clean = clean_text(text)
        start = 0
        while clean.startswith(NOTICE, start):
            start += len(NOTICE)
        bare = clean[start:]
        _text_blocks(bare, ())
        return cls("user", (TextBlock(NOTICE + bare),))

    @classmethod
    def assistant(cls, text: str) -> Self:
        """Return a reply, for ``State(messages=...)`` that starts from a conversation which has some.

        Raises:
            TypeError: *text* isn't a ``str``.
            ValueError: the text is blank.
        """
        return cls("assistant", _text_blocks(text, ()))

    @classmethod
    def summary(cls, text: str) -> Self:
        """Return the message that stands for what a compaction took out."""
        return cls("user", (TextBlock(SUMMARY + text),))

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join([block.text for block in self.blocks if type(block) is TextBlock])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls in this message, in order."""
        return tuple([block for block in self.blocks if type(block) is ToolCall])

    @property
    def is_notice(self) -> bool:
        """Whether it came from your code: made with ``Message.notice``."""
        return self.role == "user" and self._starts_with(NOTICE)

    @property
    def is_summary(self) -> bool:
        """Whether it is the summary that a compaction left."""
        return self.role == "user" and self._starts_with(SUMMARY)

    def _starts_with(self, prefix: str) -> bool:
        first = self.blocks[0] if self.blocks else None
        return type(first) is TextBlock and first.text.startswith(prefix)


@final
@attrs.frozen(eq=False, repr=False)
class Usage(Value):
    """What requests used. ``a + b`` adds field by field."""

    input_tokens: int = 0
    """All tokens read, those from and into the provider's cache included."""
    output_tokens: int = 0
    """All tokens written, thinking included."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    thinking_tokens: int = 0
    requests: int = 0
    """Every attempt that was sent."""
    cost: Decimal | None = Decimal(0)
    """US dollars; ``None`` where some price is unknown, and then in every sum with it."""

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.thinking_tokens + other.thinking_tokens,
            self.requests + other.requests,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
        )


NO_USAGE = Usage()


def _price(value: Decimal | int | str | float) -> Decimal:
    try:
        price = Decimal(str(value))
    except ArithmeticError:
        price = Decimal("NaN")
    if not price.is_finite() or price < 0:
        raise ValueError(f"a price is a number of US dollars, 0 or more, not {value!r:.80}: Price('0.25', '1.25')")
    return price


def _price_or_none(value: Decimal | int | str | float | None) -> Decimal | None:
    return None if value is None else _price(value)


@final
@attrs.frozen(eq=False, repr=False)
class Price(Value):
    """US dollars per million tokens: ``Price(3, 15)``, ``Price("0.25", "1.25")``.

    Raises:
        ValueError: a price isn't a number, or below 0.
    """

    input: Decimal = attrs.field(converter=_price)
    output: Decimal = attrs.field(converter=_price)
    cache_read: Decimal | None = attrs.field(default=None, converter=_price_or_none)
    """For tokens read from the cache; ``None`` = as *input*."""
    cache_write: Decimal | None = attrs.field(default=None, converter=_price_or_none)
    """For tokens written into the cache; ``None`` = as *input*."""

    def cost(self, usage: Usage) -> Decimal:
        """Return what *usage* costs, in US dollars."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        total = plain * self.input + usage.cache_read_tokens * read + usage.cache_write_tokens * write
        return (total + usage.output_tokens * self.output) / 1_000_000


@final
@attrs.frozen(eq=False, repr=False)
class Reply(Value):
    """What a model answered."""

    blocks: tuple[Block, ...] = attrs.field(converter=as_blocks)
    model: str = attrs.field(default="", converter=joined)
    """The model's name as the provider reported it."""
    stop_reason: str | None = attrs.field(default=None, converter=joined_or_none)
    """Why it ended, in the provider's own word."""
    usage: Usage = NO_USAGE
    cut_off: bool = False
    """Whether a limit on output or the context window ended it."""
    refusal: bool = False
    """Whether the model, or a filter before it, refused. The words, if any, are in *blocks*."""

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join([block.text for block in self.blocks if type(block) is TextBlock])

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls in this reply, in order."""
        return tuple([block for block in self.blocks if type(block) is ToolCall])


def _freeze_schema(schema: object) -> FrozenDict:
    return freeze_dict(schema, "schema")


def _freeze_schema_or_none(schema: object) -> FrozenDict | None:
    return None if schema is None else freeze_dict(schema, "schema")


def _freeze_metadata(data: object) -> FrozenDict:
    return data if type(data) is FrozenDict else freeze_dict(data, "metadata")


@final
@attrs.frozen(eq=False, repr=False)
class ToolSpec(Value):
    """A tool as a model is told of it."""

    name: str
    description: str
    input_schema: FrozenDict = attrs.field(converter=_freeze_schema)
    """JSON Schema of the arguments, an object (draft 2020-12)."""


ToolChoice: TypeAlias = str
"""``"auto"``, ``"required"``, ``"none"``, or the name of the one tool to call."""


@final
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Request(Value):
    """One question to a model: everything it gets to see."""

    messages: Sequence[Message]
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    returns: FrozenDict | None = attrs.field(default=None, converter=_freeze_schema_or_none)
    """JSON Schema of the answer, where structured output is wanted."""
    cache: bool = True
    """Whether the provider may keep the beginning of the conversation for the next request."""
    metadata: FrozenDict = attrs.field(default=FrozenDict(), converter=_freeze_metadata)


@final
@attrs.frozen(eq=False, repr=False)
class TextDelta(Value):
    """A piece of a reply's text, as it arrives."""

    text: str


@final
@attrs.frozen(eq=False, repr=False)
class ThinkingDelta(Value):
    """A piece of a reply's reasoning, as it arrives."""

    text: str
