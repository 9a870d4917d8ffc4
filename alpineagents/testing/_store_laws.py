"""StoreLaws: the test class that any Store must pass, ours and yours."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from .._contracts import Store
from ._laws._entries import EntryLaws
from ._laws._leases import LeaseLaws
from ._laws._listing import ListingLaws
from ._laws._states import StateLaws
from ._laws._together import TogetherLaws


class StoreLaws(EntryLaws, ListingLaws, LeaseLaws, TogetherLaws, StateLaws):
    """What a Store must do, as tests: subclass it beside a fixture that makes your store, empty.

    They are plain test functions, each of which runs trio itself: no pytest plugin is needed, and pytest-trio, anyio
    and pytest-asyncio don't mind. So the fixtures are plain ones, too. A law that fails says what a store must do.

    ``store`` is all that is needed. Three more make more laws run:

    * ``other``: another store object on the same data, as a second process has one.
    * ``expire``: a function that lets the lease of the State with this id run out, for stores with ``lease_seconds``.
    * ``damage``: a function that spoils the saved history of the State with this id.

    A law that needs one that you leave out is skipped; say ``damage = None`` where there can't be one.

    Example::

        import pytest

        from alpineagents.testing import StoreLaws


        class TestMyStore(StoreLaws):
            @pytest.fixture
            def store(self, tmp_path):
                return MyStore(tmp_path)

            @pytest.fixture
            def other(self, tmp_path):
                return MyStore(tmp_path)
    """

    def __init_subclass__(cls) -> None:
        """Leave out the laws that need what this store can't have."""
        absent = {name for name in ("other", "expire", "damage") if getattr(cls, name) is None}
        for name in dir(StoreLaws):
            if name.startswith("test_") and absent.intersection(inspect.signature(getattr(StoreLaws, name)).parameters):
                setattr(cls, name, None)

    @pytest.fixture
    def other(self) -> Store:
        """Another store object on the data of ``store``."""
        pytest.skip("needs the fixture `other`: another store object on the same data")

    @pytest.fixture
    def expire(self) -> Callable[[str], None]:
        """Lets the lease of a State run out."""
        pytest.skip("needs the fixture `expire`: a function that lets the lease of a State run out")

    @pytest.fixture
    def damage(self) -> Callable[[str], None]:
        """Spoils the saved history of a State."""
        pytest.skip("needs the fixture `damage`: a function that spoils the saved history of a State")
