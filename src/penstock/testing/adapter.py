"""How the contract suite makes a destination, and reads back what it delivered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import ClassVar, Literal

from penstock.destination.contract import Destination
from penstock.destination.memory import MemoryChange, TableName
from penstock.testing.merge_model import FrozenRow


class Adapter(ABC):
    """A place for deliveries that outlives the Destination objects that ``make`` gives.

    A package writes one for each destination, or for each way of it that differs. Its attributes
    state what a reader cannot find there; the suite takes them at their word, and asks all else.
    """

    keeps: ClassVar[Literal["changes", "rows", "a count"]] = "changes"
    """What can be read back: every change, the rows that are left, or how many changes came."""
    keeps_messages: ClassVar[bool] = True
    """False: messages of pg_logical_emit_message leave no trace."""
    takes_keyless: ClassVar[bool] = True
    """False: it refuses tables whose rows nothing identifies; the suite sends none of them."""
    follows_columns: ClassVar[bool] = True
    """False: a table whose columns change, and no schema change told of it, is refused."""
    longest_text: ClassVar[int | None] = None
    """How many bytes a text has at most: a longer one refuses its table."""
    plain_names: ClassVar[bool] = False
    """True: a table whose names have more than ASCII's letters, digits, _ and blanks is refused."""
    tells_schema: ClassVar[bool] = False
    """True: ``delivered`` has schema changes in their places, with the op ``schema``."""
    widens_old_rows: ClassVar[bool] = False
    """True: a change that came before a column did shows that column as null, once it is there."""
    chunk_stands_once: ClassVar[bool] = True
    """False: a chunk of copied rows that is committed twice is there twice."""
    chunk_waits_for_commit: ClassVar[bool] = True
    """False: a chunk is there, whole, once its writer is done."""
    chunk_is_whole: ClassVar[bool] = True
    """False: pieces of a chunk that failed may be there; those that come again stand over them."""
    chunk_is_sent: ClassVar[bool] = False
    """True: a chunk is there as often as it was written, whatever becomes of its receipts."""
    keeps_all_order: ClassVar[bool] = True
    """False: order is kept lane by lane, and ``delivered`` puts changes in order itself."""

    @abstractmethod
    def make(self) -> Destination:
        """A destination of the same place each time, as a new driver would make it; not opened."""

    def delivered(self) -> list[MemoryChange]:
        """What a reader finds of the stream, in the order in which it stands there."""
        raise NotImplementedError(f"{type(self).__name__} keeps {self.keeps}")

    def copied(self) -> list[MemoryChange]:
        """Copied rows of all tables, in any order; their op is ``read``."""
        raise NotImplementedError(f"{type(self).__name__} keeps {self.keeps}")

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        """The rows of a table, and how many of each, where ``keeps`` says rows."""
        raise NotImplementedError(f"{type(self).__name__} keeps {self.keeps}")

    def count(self) -> int:
        """How many changes there are."""
        return len(self.delivered())

    def copied_count(self) -> int:
        """How many copied rows there are."""
        return len(self.copied())
