"""Where the source's tables and types go in the target database. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.config.table_patterns import PatternError, split_name
from penstock.model.errors import ConfigError
from penstock.model.table_definition import TableDefinition

OWN_SCHEMA = "penstock"
"""Holds progress, staging and dead letters at the destination; nobody's tables."""

_SYSTEM_SCHEMAS = ("pg_catalog", "information_schema")


class TableNames:
    """The mapping that ``schema`` and ``tables`` of the pipeline file ask for.

    ``schema`` is one target schema for all, or a mapping of source schemas to target schemas; what
    it does not name keeps its schema. ``tables`` maps single tables, as ``shop.orders`` to
    ``warehouse.sales``: on the left a name without a schema is one of public, on the right it stays
    in the schema that ``schema`` gives.
    """

    def __init__(
        self,
        schema: str | Mapping[str, str] | None = None,
        tables: Mapping[str, str] | None = None,
    ) -> None:
        """Raises ConfigError for a name that is none."""
        self._schema = dict(schema) if isinstance(schema, Mapping) else schema
        self._tables: dict[tuple[str, str], tuple[str, str]] = {}
        self._written: dict[tuple[str, str], str] = {}
        for left, right in (tables or {}).items():
            source = _name(left)
            if source in self._tables:
                raise ConfigError(
                    f"destination.tables names {left!r} twice, the other time as"
                    f" {self._written[source]!r}.",
                    remedy="Keep one of the two lines.",
                )
            self._tables[source] = _name(right, self.schema(source[0]))
            self._written[source] = left

    def schema(self, schema: str) -> str:
        """The target schema of what lies in a schema of the source."""
        if schema in _SYSTEM_SCHEMAS:
            return schema
        if isinstance(self._schema, dict):
            return self._schema.get(schema, schema)
        return self._schema or schema

    def target(self, schema: str, name: str) -> tuple[str, str]:
        """Schema and name of the target table."""
        return self._tables.get((schema, name)) or (self.schema(schema), name)

    def check(self, definitions: Iterable[TableDefinition]) -> None:
        """Raise ConfigError, with all that is wrong, where the mapping does not suit these tables:
        two meet at one target, a line of ``tables`` names none of them, or one would lie in our own
        schema.
        """
        definitions = list(definitions)
        followed = {(table.schema, table.name) for table in definitions}
        problems = [
            f"destination.tables names {self._written[source]!r}, which this pipeline does not"
            " follow"
            for source in self._tables
            if source not in followed
        ]
        problems += _meetings("tables", {source: self.target(*source) for source in followed})
        types = {(kind.schema, kind.name) for table in definitions for kind in table.types}
        problems += _meetings("types", {(s, n): (self.schema(s), n) for s, n in types})
        problems += [
            f"{_dotted(source)} would lie in the schema {OWN_SCHEMA}, which is Penstock's own"
            for source in sorted(followed)
            if self.target(*source)[0] == OWN_SCHEMA
        ]
        if problems:
            raise ConfigError(
                "The destination's table mapping does not work out:\n"
                + "\n".join(f"- {problem}" for problem in problems),
                remedy="Change destination.schema or destination.tables in the pipeline file.",
            )


def _meetings(what: str, targets: Mapping[tuple[str, str], tuple[str, str]]) -> list[str]:
    sources: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for source, target in sorted(targets.items()):
        sources.setdefault(target, []).append(source)
    return [
        f"the {what} {' and '.join(map(_dotted, found))} would both become {_dotted(target)}"
        for target, found in sources.items()
        if len(found) > 1
    ]


def _name(text: str, bare_schema: str = "public") -> tuple[str, str]:
    """Schema and name; ``bare_schema`` where the text names none."""
    try:
        schema, name = split_name(text)
    except PatternError as error:
        raise ConfigError(f"destination.tables: {text!r} is no table name: {error.why}.") from error
    except ValueError as error:
        raise ConfigError(f"destination.tables: {error}.") from error
    return (bare_schema if _is_bare(text) else schema, name)


def _is_bare(text: str) -> bool:
    try:
        split_name(f"public.{text}")
    except ValueError:  # it has a schema already: that would make three parts
        return False
    return True


def _dotted(name: tuple[str, str]) -> str:
    return f"{name[0]}.{name[1]}"
