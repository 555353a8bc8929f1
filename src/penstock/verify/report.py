"""What `penstock verify` found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock.model.lsn import format_lsn

DifferenceKind = Literal["missing", "extra", "different"]


@dataclass(frozen=True)
class RowDifference:
    """One row that is not the same on both sides.

    ``missing`` and ``extra`` are said of the destination. ``row`` is the key (``id=7``), or, in a
    table without one, the values. ``count`` is how many more of it one side has.
    """

    kind: DifferenceKind
    row: str
    columns: tuple[str, ...] = ()
    count: int = 1

    def __str__(self) -> str:
        if self.kind == "different":
            return f"different: {self.row} in {', '.join(self.columns)}"
        where = "missing in the destination" if self.kind == "missing" else "only there"
        return f"{where}: {self.row}" + (f", {self.count} times" if self.count > 1 else "")


@dataclass(frozen=True)
class TableComparison:
    """One table. ``differing`` counts the rows that were found to differ; where there are so many
    that not all of them were looked at, ``counted_all`` is False. ``differences`` are some of them.

    ``not_compared`` is the reason why nothing is known of the table, which does not pass for equal;
    ``skipped`` the reason why nothing was to be compared.
    """

    source: str
    target: str
    source_rows: int = 0
    target_rows: int = 0
    differing: int = 0
    counted_all: bool = True
    differences: tuple[RowDifference, ...] = ()
    not_compared: str = ""
    skipped: str = ""

    @property
    def equal(self) -> bool:
        return not self.differing and not self.not_compared

    @property
    def name(self) -> str:
        return self.source if self.source == self.target else f"{self.source} → {self.target}"


@dataclass(frozen=True)
class ConstraintResult:
    """A constraint of a target table that holds only if replication made no mistake.

    ``violations`` are some of the values that violate it, ``more`` is True where there are others.
    ``unchecked`` is the reason why it was not looked at.
    """

    table: str
    name: str
    kind: Literal["unique", "foreign key", "check", "not null", "exclusion"]
    violations: tuple[str, ...] = ()
    more: bool = False
    unchecked: str = ""


@dataclass(frozen=True)
class VerifyReport:
    """The whole comparison. ``drove`` is True where the pipeline was not running, so that verify
    itself brought the destination to the position ``lsn``.
    """

    pipeline: str
    lsn: int
    drove: bool
    tables: tuple[TableComparison, ...]
    constraints: tuple[ConstraintResult, ...]

    @property
    def equal(self) -> bool:
        """Every table is the same on both sides, and every constraint that was checked holds."""
        return all(table.equal for table in self.tables) and not self.violated

    @property
    def violated(self) -> tuple[ConstraintResult, ...]:
        return tuple(result for result in self.constraints if result.violations)

    @property
    def rows(self) -> int:
        """How many rows of the source were compared."""
        return sum(table.source_rows for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "lsn": format_lsn(self.lsn),
            "drove": self.drove,
            "equal": self.equal,
            "rows": self.rows,
            "tables": [{**asdict(table), "equal": table.equal} for table in self.tables],
            "constraints": [asdict(result) for result in self.constraints],
        }
