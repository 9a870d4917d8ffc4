"""What goes to a model and comes back: messages, requests, replies, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Literal, Self, TypeAlias, final

import attrs

from ._blocks import Block, File, Image, TextBlock, ToolCall, as_blocks, clean_text, flag
from ._frozen import FrozenDict, freeze_dict, joined, joined_or_none
from ._value import Value

Role: TypeAlias = Literal["user", "assistant", "tool"]
"""Who speaks: the person or the code, the model, or the tools."""

NOTICE = "[notice] "
"""How the text of a message from code begins."""

SUMMARY = "[summary of the conversation so far] "
"""How the text begins that stands for what a compaction took out."""


def _text_blocks(text: str, others: tuple[Block, ...]) -> tuple[Block, ...]:
    clean = clean_text(text)
    if clean and not clean.isspace():
        return (TextBlock(clean), *others)
    if not others:
        raise ValueError(f"a message needs text or an image (got text {text!r}): Message.user('Find the bug')")
    return others


def _role(role: Role) -> Role:
    if role in ("user", "assistant", "tool"):
        return str.__str__(role)  # type: ignore[return-value]  # one of the three
    raise ValueError(f"role must be 'user', 'assistant' or 'tool', not {role!r:.80}: Message.user('Find the bug')")


@final
@attrs.frozen(eq=False, repr=False)
class Message(Value):
    """One message of the conversation, as the model sees it. Made with ``user``, ``notice`` and ``assistant``.

    Raises:
        TypeError: *blocks* holds something that is no block.
        ValueError: *role* is none of the three.
    """

    role: Role = attrs.field(converter=_role)
    """``user`` (the person and the code), ``assistant`` (the model), ``tool`` (results)."""
    blocks: tuple[Block, ...] = attrs.field(converter=as_blocks)
    """What it consists of, in order."""
    cut_off: bool = attrs.field(default=False, converter=flag)
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


def _dollars(value: Decimal | int | str | float) -> Decimal:
    """Return an amount exactly as it was written; ValueError where it is no finite number."""
    try:
        amount = Decimal(str(value))
    except ArithmeticError:
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise ValueError(f"{value!r:.80} is not a number of US dollars; write Decimal('0.25') or None")
    return amount


def _cost(value: Decimal | int | str | float | None) -> Decimal | None:
    if value is None or (type(value) is Decimal and value.is_finite()):
        return value
    return _dollars(value)


_COUNTS = (
    *("input_tokens", "output_tokens", "cache_read_tokens"),
    *("cache_write_tokens", "thinking_tokens", "requests"),
)


@final
@attrs.frozen(eq=False, repr=False)
class Usage(Value):
    """What requests used. ``a + b`` adds field by field.

    Raises:
        TypeError: a count isn't an ``int``.
        ValueError: the cost isn't a finite number.
    """

    input_tokens: int = 0
    """All tokens read, those from and into the provider's cache included."""
    output_tokens: int = 0
    """All tokens written, thinking included."""
    cache_read_tokens: int = 0
    """Of the input tokens, those read from the provider's cache."""
    cache_write_tokens: int = 0
    """Of the input tokens, those written into the provider's cache."""
    thinking_tokens: int = 0
    """Of the output tokens, those of reasoning."""
    requests: int = 0
    """Every attempt that was sent."""
    cost: Decimal | None = attrs.field(default=Decimal(0), converter=_cost)
    """US dollars; ``None`` where some price is unknown, and then in every sum with it."""

    def __attrs_post_init__(self) -> None:
        # Else the first sum would stumble over it, or, worse, whoever loads it: JSON has no way back to it.
        if not (
            type(self.input_tokens) is type(self.output_tokens) is type(self.cache_read_tokens) is int
            and type(self.cache_write_tokens) is type(self.thinking_tokens) is type(self.requests) is int
        ):
            name = next(name for name in _COUNTS if type(getattr(self, name)) is not int)
            raise TypeError(f"{name} must be an int, not {type(getattr(self, name)).__name__}: Usage(input_tokens=10)")

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
    price = _dollars(value)
    if price < 0:
        raise ValueError(f"a price is 0 or more US dollars, not {value!r:.80}: Price('0.25', '1.25')")
    return price


def _price_or_none(value: Decimal | int | str | float | None) -> Decimal | None:
    return None if value is None else _price(value)


@final
@attrs.frozen(eq=False, repr=False)
class Price(Value):
    """US dollars per million tokens: ``Price(3, 15)``, ``Price("0.25", "1.25")``. Exact, as they were written.

    Raises:
        ValueError: a price isn't a number, or below 0.
    """

    input: Decimal = attrs.field(converter=_price)
    """For tokens read."""
    output: Decimal = attrs.field(converter=_price)
    """For tokens written, thinking included."""
    cache_read: Decimal | None = attrs.field(default=None, converter=_price_or_none)
    """For tokens read from the cache; ``None`` = as *input*."""
    cache_write: Decimal | None = attrs.field(default=None, converter=_price_or_none)
    """For tokens written into the cache; ``None`` = as *input*."""

    def cost(self, usage: Usage) -> Decimal:
        """Return what *usage* costs, in US dollars. ``usage.cost`` isn't looked at."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        plain = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        total = plain * self.input + usage.cache_read_tokens * read + usage.cache_write_tokens * write
        return (total + usage.output_tokens * self.output) / 1_000_000


def _usage(usage: Usage) -> Usage:
    if type(usage) is not Usage:
        raise TypeError(f"usage must be a Usage, not {type(usage).__name__}: Usage(input_tokens=10)")
    return usage


@final
@attrs.frozen(eq=False, repr=False)
class Reply(Value):
    """What a model answered.

    Raises:
        TypeError: *blocks* holds something that is no block, or another field is of a wrong type.
    """

    blocks: tuple[Block, ...] = attrs.field(converter=as_blocks)
    """Text, thinking, tool calls and the provider's own blocks, in order; it may be empty."""
    model: str = attrs.field(default="", converter=joined)
    """The model's name as the provider reported it."""
    stop_reason: str | None = attrs.field(default=None, converter=joined_or_none)
    """Why it ended, in the provider's own word; ``None`` where it gave none."""
    usage: Usage = attrs.field(default=NO_USAGE, converter=_usage)
    """What it cost, all attempts included."""
    cut_off: bool = attrs.field(default=False, converter=flag)
    """Whether a limit on output or the context window ended it."""
    refusal: bool = attrs.field(default=False, converter=flag)
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
    """What the model calls it by."""
    description: str
    """What it does, in words for the model."""
    input_schema: FrozenDict = attrs.field(converter=_freeze_schema)
    """JSON Schema (draft 2020-12) of the arguments, which are an object."""


ToolChoice: TypeAlias = str
"""``"auto"``, ``"required"``, ``"none"``, or the name of the one tool to call."""


@final
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Request(Value):
    """One question to a model: everything it gets to see."""

    messages: Sequence[Message]
    """The conversation: each reply with calls is followed at once by their results."""
    system: str | None = None
    """The system prompt; ``None`` = none."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools it may ask for, in the Agent's order."""
    tool_choice: ToolChoice = "auto"
    """Whether it may, must or must not ask for one; see ToolChoice."""
    returns: FrozenDict | None = attrs.field(default=None, converter=_freeze_schema_or_none)
    """JSON Schema (draft 2020-12) of the answer, where structured output is wanted; ``None`` = free text."""
    cache: bool = True
    """Whether the provider may keep the beginning of the conversation for the next request."""
    metadata: FrozenDict = attrs.field(default=FrozenDict(), converter=_freeze_metadata)
    """What a Model of your own may want to know besides, in JSON form."""


@attrs.frozen(eq=False, repr=False)
class TextDelta(Value):
    """A piece of a reply's text, as it arrives."""

    text: str
    """What came since the piece before."""


@attrs.frozen(eq=False, repr=False)
class ThinkingDelta(Value):
    """A piece of a reply's reasoning, as it arrives."""

    text: str
    """What came since the piece before."""
