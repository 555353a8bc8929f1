"""What became of the values of an enum and of the attributes of a composite type. No I/O.

Neither has a number that lives as long as it does, so its place between those that stayed decides
whether it was renamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.model.table_definition import TypeDefinition, TypeName

Attribute = tuple[str, TypeName]


@dataclass(frozen=True)
class LabelChange:
    """A value of an enum that was renamed, or added: after another one, or before it."""

    label: str
    renamed_from: str | None = None
    after: str | None = None
    before: str | None = None

    @property
    def text(self) -> str:
        if self.renamed_from is not None:
            return f"value {_literal(self.renamed_from)} renamed to {_literal(self.label)}"
        text = f"value {_literal(self.label)} added"
        if self.after is not None:
            return f"{text} after {_literal(self.after)}"
        return text if self.before is None else f"{text} before {_literal(self.before)}"


@dataclass(frozen=True)
class AttributeChange:
    """An attribute that was added, dropped (``after`` is None), renamed or got another type."""

    before: Attribute | None
    after: Attribute | None

    @property
    def text(self) -> str:
        if self.before is None:
            assert self.after is not None  # noqa: S101 (one of the two is there)
            return f"attribute {self.after[0]} {shown_type(self.after[1])} added"
        name, kind = self.before
        if self.after is None:
            return f"attribute {name} dropped"
        if self.after[0] != name:
            return f"attribute {name} renamed to {self.after[0]}"
        return f"attribute {name}: {shown_type(kind)} -> {shown_type(self.after[1])}"


def label_changes(before: Sequence[str], after: Sequence[str]) -> list[LabelChange] | None:
    """The steps from one to the other, in their order; None where ALTER TYPE knows no such steps.

    A value never leaves an enum, and none changes places.
    """
    gaps = _gaps(before, after)
    if gaps is None:
        return None
    changes: list[LabelChange] = []
    previous: str | None = None
    for gone, new, following in gaps:
        if len(gone) > len(new):
            return None
        for place, label in enumerate(new):
            if place < len(gone):
                changes.append(LabelChange(label, renamed_from=gone[place]))
            elif previous is not None:
                changes.append(LabelChange(label, after=previous))
            else:
                changes.append(LabelChange(label, before=following))
            previous = label
        previous = following
    return changes


def has_labels(labels: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether an enum has all that are wanted, in their order; it may have more."""
    rest = iter(labels)
    return all(label in rest for label in wanted)


def attribute_changes(
    before: Sequence[Attribute], after: Sequence[Attribute]
) -> list[AttributeChange]:
    """The steps from one to the other. One that went where another of its type came was renamed."""
    old, new = dict(before), dict(after)
    changes = [
        AttributeChange((name, old[name]), (name, new[name]))
        for name in old
        if name in new and old[name] != new[name]
    ]
    gaps = _gaps(list(old), list(new))
    if gaps is None:
        gaps = [([n for n in old if n not in new], [n for n in new if n not in old], None)]
    dropped, renamed, added = [], [], []
    for gone, come, _following in gaps:
        pairs = list(zip(gone, come, strict=False))
        kept = [(left, right) for left, right in pairs if old[left] == new[right]]
        renamed += [AttributeChange((a, old[a]), (b, new[b])) for a, b in kept]
        lefts, rights = {left for left, _ in kept}, {right for _, right in kept}
        dropped += [AttributeChange((a, old[a]), None) for a in gone if a not in lefts]
        added += [AttributeChange(None, (b, new[b])) for b in come if b not in rights]
    return [*dropped, *renamed, *changes, *added]


def type_changes(before: TypeDefinition, after: TypeDefinition) -> Iterator[str]:
    """What changed, in words."""
    if (before.schema, before.name) != (after.schema, after.name):
        yield f"renamed to {after.qualified_name}"
    if before.kind != after.kind:
        yield f"{before.kind} -> {after.kind}"
    labels = label_changes(before.labels, after.labels)
    if labels is None:
        yield f"values ({', '.join(before.labels)}) -> ({', '.join(after.labels)})"
    else:
        yield from (change.text for change in labels)
    yield from (c.text for c in attribute_changes(before.attributes, after.attributes))
    if before.base != after.base or before.collation != after.collation:
        yield f"{_shown_base(before)} -> {_shown_base(after)}"
    if before.default != after.default:
        yield "default dropped" if after.default is None else f"default {after.default}"
    if before.not_null != after.not_null:
        yield "NOT NULL added" if after.not_null else "NOT NULL dropped"
    yield from (f"{c} dropped" for c in before.constraints if c not in after.constraints)
    yield from (f"{c} added" for c in after.constraints if c not in before.constraints)
    if before.multirange != after.multirange:
        yield f"multirange {before.multirange} renamed to {after.multirange}"


def shown_type(kind: TypeName, collation: tuple[str, str] | None = None) -> str:
    """For people: nothing is quoted."""
    name = f"{kind.schema}.{kind.name}" if kind.is_user_defined else kind.name
    text = f"{name}{kind.modifier}{'[]' if kind.is_array else ''}"
    return text if collation is None else f"{text} collate {collation[1]}"


def _shown_base(kind: TypeDefinition) -> str:
    return "nothing" if kind.base is None else shown_type(kind.base, kind.collation)


def _gaps(
    before: Sequence[str], after: Sequence[str]
) -> list[tuple[list[str], list[str], str | None]] | None:
    """Between those that stayed: what went, what came, and the one that follows, if any.

    None where those that stayed are in another order.
    """
    stayed = [name for name in before if name in set(after)]
    if stayed != [name for name in after if name in set(before)]:
        return None
    gaps = []
    left, right = iter(before), iter(after)
    for following in [*stayed, None]:
        gone = list(_until(left, following))
        come = list(_until(right, following))
        gaps.append((gone, come, following))
    return gaps


def _until(names: Iterator[str], end: str | None) -> Iterator[str]:
    for name in names:
        if name == end:
            return
        yield name


def _literal(label: str) -> str:
    escaped = label.replace("'", "''")
    return f"'{escaped}'"
