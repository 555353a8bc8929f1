"""The indexes behind a table's name.

A table's rows are in a generation: an index ``NAME.g1``, ``NAME.g2``, … Readers use the alias
``NAME``. Writers use an alias of that generation alone, ``NAME.g2.write``, and say that it must be
an alias: once it is taken away, whatever still comes from somebody who does not know is refused,
and creates nothing. A table that is copied anew, truncated or changed gets another generation, and
the alias of readers moves when that one is ready.

A generation that follows others in the stream (TRUNCATE, a schema change) names them, and the
position that it begins at as ``floor``: a writer that meets a closed generation goes on in the one
that follows, without rows that are older than that. One that a copy made follows none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.destination.search.client import SearchClient, part
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.model.lsn import Position
from penstock.model.stored import Stored

_NUMBER = re.compile(r"\.g(\d+)$")
# Writers that are older than so many TRUNCATEs are none that anybody waits for.
_LONGEST_LINE = 50
_NO_FLOOR = Position(0, 0)
_ABOUT = "*.aliases,*.mappings._meta"


@dataclass(frozen=True)
class Generation(Stored):
    """One index. ``is_shadow``: readers do not see it yet."""

    name: str
    number: int
    oid: int
    ledger: str
    """Which ledger's driver made it: positions of another one mean something else."""
    is_written: bool = False
    is_shadow: bool = False
    floor: Position = _NO_FLOOR
    follows: tuple[str, ...] = ()

    @property
    def index(self) -> str:
        return f"{self.name}.g{self.number}"

    @property
    def writers(self) -> str:
        """The alias that writes go through."""
        return f"{self.index}.write"

    @property
    def filler(self) -> str:
        """The alias that documents of the one before it are carried over through."""
        return f"{self.index}.fill"

    @property
    def line(self) -> tuple[str, ...]:
        """What one that follows it in the stream follows."""
        return (*self.follows, self.index)[-_LONGEST_LINE:]

    def meta(self) -> dict[str, Any]:
        return {
            "penstock": {
                "table": self.oid,
                "ledger": self.ledger,
                "floor": [str(number) for number in self.floor],
                "follows": list(self.follows),
            }
        }


@dataclass(frozen=True)
class Generations:
    """Makes generations, and lets one follow another. Used by the driver and on executors."""

    client: SearchClient
    ledger: str

    def found(self, name: str) -> list[Generation]:
        """All of a name, whoever made them, in their order."""
        path = f"{part(name)}.g*"
        answer = self.client.call(
            "GET", path, doing=f"looking for indexes of {name}", query={
                "filter_path": _ABOUT, "ignore_unavailable": "true", "allow_no_indices": "true",
            },
        )  # fmt: skip
        made = [_generation(name, index, about) for index, about in answer.body.items()]
        return sorted((each for each in made if each is not None), key=lambda each: each.number)

    def of_table(self, name: str, oid: int) -> list[Generation]:
        """Those that this ledger's drivers made for a table."""
        return [g for g in self.found(name) if (g.oid, g.ledger) == (oid, self.ledger)]

    def written(self, name: str, oid: int) -> Generation | None:
        """The one that writes go to."""
        return next((g for g in reversed(self.of_table(name, oid)) if g.is_written), None)

    def make(self, name: str, oid: int, body: Mapping[str, Any], **about: Any) -> Generation:
        """A new index that nobody reads or writes yet."""
        number = max((each.number for each in self.found(name)), default=0) + 1
        while True:
            made = Generation(name, number, oid, self.ledger, is_shadow=True, **about)
            mappings = {**body["mappings"], "_meta": made.meta()}
            answer = self.client.call(
                "PUT", part(made.index), {"settings": body["settings"], "mappings": mappings},
                doing=f"making the index {made.index}", allowed=(400,),
            )  # fmt: skip
            if answer.status != 400:
                return made
            kind = answer.body.get("error", {}).get("type", "")
            if kind != "resource_already_exists_exception":
                raise _refused(f"the index {made.index} could not be made", answer.body)
            # Its answer was lost, somebody took the number just now, or has such an index.
            number += 1

    def let_fill(self, made: Generation) -> None:
        """Give a generation its filler: once it is gone, nothing comes in, and makes it anew."""
        self._change_aliases([_add(made.index, made.filler, is_hidden=True)], made.name)

    def open(
        self,
        made: Generation,
        *,
        reads: bool,
        closes: Generation | None = None,
        is_filled: bool = False,
    ) -> Generation:
        """Let writes go to a generation, and readers too, in one step with the end of the one that
        was written until now, and of the filler. May be done again.
        """
        actions: list[dict[str, Any]] = [_add(made.index, made.writers, is_hidden=True)]
        if is_filled:
            actions.append(_remove(made.index, made.filler))
        if closes is not None and closes.is_written:
            actions.append(_remove(closes.index, closes.writers))
        if reads:
            actions += self._readers_of(made)
        self._change_aliases(actions, made.name)
        return replace(made, is_written=True, is_shadow=not reads)

    def show(self, made: Generation) -> Generation:
        """Let readers see a generation in place of others."""
        self._change_aliases(self._readers_of(made), made.name)
        return replace(made, is_shadow=False)

    def clean(self, kept: Generation) -> None:
        """Remove generations of the same name that nobody reads or writes any more."""
        for each in self.found(kept.name):
            if each.number < kept.number and each.is_shadow and not each.is_written:
                self.delete(each)

    def close(self, made: Generation) -> None:
        """Let nobody write to a generation any more."""
        self._change_aliases([_remove(made.index, made.writers)], made.name)

    def delete(self, made: Generation) -> None:
        self.client.call(
            "DELETE", part(made.index), doing=f"removing the index {made.index}", allowed=(404,)
        )

    def follow(self, closed: Generation) -> Generation | None:
        """The generation that is written now, if it is the same one or came after it in the
        stream.
        """
        written = [each for each in self.of_table(closed.name, closed.oid) if each.is_written]
        return next((each for each in written if closed.index in (each.index, *each.follows)), None)

    def raise_floor(self, at: Generation, floor: Position) -> Generation:
        """Note that what is older than a position is not wanted in a generation."""
        raised = replace(at, floor=max(at.floor, floor))
        self.client.call(
            "PUT", f"{part(at.index)}/_mapping", {"_meta": raised.meta()},
            doing=f"noting a position at {at.index}",
        )  # fmt: skip
        return raised

    def empty_like(self, at: Generation, floor: Position) -> Generation:
        """A new generation with the same fields, which follows another: a TRUNCATE."""
        answer = self.client.call(
            "GET",
            part(at.index),
            doing=f"reading how {at.index} is made",
            query={"flat_settings": "true"},
        )
        found = answer.body[at.index]
        settings = {
            name: value
            for name, value in found["settings"].items()
            if name not in _OF_ONE_INDEX and not name.startswith("index.version.")
        }
        body = {"settings": settings, "mappings": found["mappings"]}
        return self.make(at.name, at.oid, body, floor=floor, follows=at.line)

    def _readers_of(self, made: Generation) -> list[dict[str, Any]]:
        answer = self.client.call(
            "GET", f"_alias/{part(made.name)}", doing="looking for the readers' alias",
            allowed=(404,),
        )  # fmt: skip
        others = [] if answer.status == 404 else list(answer.body)
        removed = [_remove(index, made.name) for index in others if index != made.index]
        return [*removed, _add(made.index, made.name)]

    def _change_aliases(self, actions: list[dict[str, Any]], name: str) -> None:
        answer = self.client.call(
            "POST", "_aliases", {"actions": actions}, doing=f"moving the aliases of {name}",
            allowed=(400, 404),
        )  # fmt: skip
        if answer.status == 404:
            # Somebody moved one of them meanwhile: whoever asked looks again.
            raise DestinationUnavailable(
                f"destination search: the aliases of {name} changed just now",
                remedy="none: it is tried again",
            )
        if answer.status == 400:
            raise _refused(f"the alias {name} could not be made", answer.body)


_OF_ONE_INDEX = frozenset(
    {"index.uuid", "index.creation_date", "index.provided_name", "index.version.created"}
)


def _generation(name: str, index: str, about: Mapping[str, Any]) -> Generation | None:
    number = _NUMBER.search(index.removeprefix(name))
    meta = about.get("mappings", {}).get("_meta", {}).get("penstock")
    if number is None or f"{name}.g{number[1]}" != index or meta is None:
        return None
    aliases = about.get("aliases", {})
    return Generation(
        name,
        int(number[1]),
        meta["table"],
        meta["ledger"],
        is_written=f"{index}.write" in aliases,
        is_shadow=name not in aliases,
        floor=Position(*map(int, meta["floor"])),
        follows=tuple(meta["follows"]),
    )


def _add(index: str, alias: str, *, is_hidden: bool = False) -> dict[str, Any]:
    return {"add": {"index": index, "alias": alias, **({"is_hidden": True} if is_hidden else {})}}


def _remove(index: str, alias: str) -> dict[str, Any]:
    return {"remove": {"index": index, "alias": alias, "must_exist": True}}


def _refused(what: str, body: Any) -> DestinationError:
    error = body.get("error", {}) if isinstance(body, dict) else {}
    text = error.get("reason", body) if isinstance(error, dict) else error
    return DestinationError(
        f"destination search: {what}: {text}",
        remedy="see destination.index, destination.settings and destination.mappings; a name that "
        "another index has cannot be an alias",
    )
