"""What row conditions are made of.

Without sqlglot, which reads their text: executors get the tree and need not load it.
"""

from __future__ import annotations

from dataclasses import dataclass

SUPPORTED = (
    "comparisons, AND, OR, NOT, IS [NOT] NULL, TRUE or FALSE, IS [NOT] DISTINCT FROM, "
    "[NOT] IN (list), [NOT] BETWEEN, [NOT] LIKE and ILIKE with a pattern in quotes, + - * /, "
    'lower, upper, length, coalesce, casts of literals, and COLLATE "C"'
)


class ConditionError(ValueError):
    """A condition that cannot be taken: why, and where in its text, counted from 1."""

    def __init__(self, why: str, at: int) -> None:
        super().__init__(why)
        self.why, self.at = why, at


@dataclass(frozen=True)
class Node:
    """One piece of a condition; ``at`` is where it begins in the text, counted from 1."""

    at: int


@dataclass(frozen=True)
class ColumnName(Node):
    name: str


@dataclass(frozen=True)
class Literal(Node):
    """A constant. ``text`` is None for NULL; ``cast`` is the type's name that was asked for."""

    text: str | None
    is_number: bool = False
    cast: str = ""


@dataclass(frozen=True)
class Call(Node):
    """lower, upper, length or coalesce."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Arithmetic(Node):
    """``operator``: ``+``, ``-``, ``*`` or ``/``."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class Negative(Node):
    of: Node


@dataclass(frozen=True)
class ByteOrder(Node):
    """A text with COLLATE "C"."""

    of: Node


@dataclass(frozen=True)
class Comparison(Node):
    """``operator``: ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=`` or IS [NOT] DISTINCT FROM."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True)
class InList(Node):
    of: Node
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Like(Node):
    """``escape`` is one character, or empty where there is none."""

    of: Node
    pattern: str
    escape: str
    ignore_case: bool


@dataclass(frozen=True)
class IsNull(Node):
    of: Node


@dataclass(frozen=True)
class IsTruth(Node):
    """IS TRUE or IS FALSE: never null itself."""

    of: Node
    value: bool


@dataclass(frozen=True)
class Not(Node):
    of: Node


@dataclass(frozen=True)
class Junction(Node):
    """AND, or else OR."""

    is_and: bool
    left: Node
    right: Node
