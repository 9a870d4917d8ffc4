"""What known models cost and how much they read, from the package genai-prices, where it is installed."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ..record._messages import Price


@lru_cache(maxsize=256)
def known_model(provider: str, base_url: str, model: str) -> tuple[int | None, Price | None]:
    """Return a model's context window in tokens and its price; None for what isn't known.

    Prices are those of today. Where long prompts cost more, the price is that of short ones.

    Args:
        provider: ``"anthropic"``, ``"openai"``, ``"google"``; for any other, *base_url* says which it is.
        base_url: Where the model is.
        model: Its name there.
    """
    try:
        from genai_prices.data_snapshot import get_snapshot  # 0.1 to 0.4 s to import
    except ImportError:
        return None, None
    known = provider if provider in ("anthropic", "google", "openai") else None
    try:
        _, found = get_snapshot().find_provider_model(model, None, known, None if known else base_url)
    except LookupError:
        return None, None
    prices = found.get_prices(datetime.now(UTC))
    read, written = _dollars(prices.input_mtok), _dollars(prices.output_mtok)
    if read is None or written is None:
        return found.context_window, None
    return found.context_window, Price(
        read, written, _dollars(prices.cache_read_mtok), _dollars(prices.cache_write_mtok)
    )


def _dollars(price: Any) -> Decimal | None:
    """Dollars per million tokens: a number, or prices by the length of the prompt, of which the base is taken."""
    return price if price is None or isinstance(price, Decimal) else _dollars(price.base)
