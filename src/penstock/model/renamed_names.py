"""SQL that a server wrote, as it reads after columns, tables and types were renamed. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.model.table_definition import TypeDefinition, TypeName

QualifiedName = tuple[str, str]

# Strings, names, and everything else one by one. Keywords that the server writes in capitals are
# no names; the others (and functions) are told by what stands beside them.
_TOKENS = re.compile(
    r"""(?P<other>'(?:[^']|'')*') | "(?P<quoted>(?:[^"]|"")+)" | (?P<bare>[a-z_][a-z0-9_$]*) | .""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class RenamedNames:
    """New names by old ones: of a table's columns, and of types with their schemas."""

    columns: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[QualifiedName, QualifiedName] = field(default_factory=dict)

    def names(self, columns: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.columns.get(name, name) for name in columns)

    def type(self, kind: TypeName) -> TypeName:
        schema, name = self.types.get((kind.schema, kind.name), (kind.schema, kind.name))
        return replace(kind, schema=schema, name=name)

    def definition(self, kind: TypeDefinition, after: TypeDefinition) -> TypeDefinition:
        """The type with the new names of what it is made of; where that is all that changed in a
        text, with the text of ``after``.
        """
        checks = dict(zip(map(_tokens, after.constraints), after.constraints, strict=True))
        default = kind.default
        return replace(
            kind,
            attributes=tuple((key, self.type(used)) for key, used in kind.attributes),
            base=None if kind.base is None else self.type(kind.base),
            default=after.default if self.is_same(default, after.default) else default,
            constraints=tuple(checks.get(self._renamed(c), c) for c in kind.constraints),
        )

    def is_same(self, before: str | None, after: str | None) -> bool:
        """Whether the one becomes the other by nothing but new names."""
        if before is None or after is None:
            return before is after
        return self._renamed(before) == _tokens(after)

    def _renamed(self, text: str) -> tuple[str, ...]:
        tokens = list(_tokens(text))
        around = ["", *tokens, "", "", ""]
        for place, token in enumerate(tokens):
            previous, following = around[place], around[place + 2]
            if not token.startswith('"') or previous == ".":
                continue
            if following == ".":
                found = (token[1:], around[place + 3][1:])
                schema, name = self.types.get(found, found)
                tokens[place : place + 3] = [f'"{schema}', ".", f'"{name}']
            elif following != "(" and previous != ":":
                name = token[1:]
                tokens[place] = f'"{self.columns.get(name, name)}'
        return tuple(tokens)


def _tokens(text: str) -> tuple[str, ...]:
    """Names begin with a double quote, whether they were quoted or not."""
    found = []
    for match in _TOKENS.finditer(text):
        if match["quoted"] is not None:
            found.append('"' + match["quoted"].replace('""', '"'))
        elif match["bare"] is not None:
            found.append('"' + match["bare"])
        else:
            found.append(match[0])
    return tuple(found)
