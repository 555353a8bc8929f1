"""What row conditions are made of.

Without sqlglot, which reads their text: executors get the tree and need not load it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

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
class _OfTwo(Node):
    operator: str
    left: Node
    right: Node


class Arithmetic(_OfTwo):
    """``operator``: ``+``, ``-``, ``*`` or ``/``."""


class Comparison(_OfTwo):
    """``operator``: ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=`` or IS [NOT] DISTINCT FROM."""


@dataclass(frozen=True)
class _Of(Node):
    of: Node


class Negative(_Of):
    """A number with a minus."""


class ByteOrder(_Of):
    """A text with COLLATE "C"."""


class IsNull(_Of):
    """IS NULL."""


class Not(_Of):
    """NOT."""


@dataclass(frozen=True)
class IsTruth(_Of):
    """IS TRUE or IS FALSE: never null itself."""

    value: bool


@dataclass(frozen=True)
class InList(_Of):
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Like(_Of):
    """``escape`` is one character, or empty where there is none."""

    pattern: str
    escape: str
    ignore_case: bool


@dataclass(frozen=True)
class Junction(Node):
    """AND, or else OR."""

    is_and: bool
    left: Node
    right: Node


def column_names(node: Node) -> Iterator[str]:
    """The columns that a condition names."""
    if isinstance(node, ColumnName):
        yield node.name
    for each in fields(node):
        value = getattr(node, each.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Node):
                yield from column_names(part)
