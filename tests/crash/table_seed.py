"""One seed of tables that come, go, rest and are copied anew under load; a kill now and then."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from penstock.embedded.postgres import EmbeddedPostgres
from tests.crash.chaos_seed import Say, SeedReport
from tests.crash.copied_tables import COPIED
from tests.crash.copying_pipeline import BALANCED
from tests.crash.faults import COPY_FAULTS
from tests.crash.into_copied import IntoCopied
from tests.crash.row_texts import expect_same_rows
from tests.workload_tables import TABLES

_OURS = tuple(table for table in (*COPIED, *TABLES) if table not in BALANCED)
"""Those that are steered; the others tell whether half a transaction can be seen meanwhile."""

_MAKE = (
    "CREATE TABLE {} (id int PRIMARY KEY, note text)",
    "INSERT INTO {} SELECT n, repeat('n', n % 300) FROM generate_series(1, 3000) n",
)
_CHANGE = (
    "UPDATE {0} SET note = note || 'longer' WHERE id BETWEEN {1} AND {1} + 200",
    "DELETE FROM {0} WHERE id BETWEEN {1} + 100 AND {1} + 110",
)


class _Steps:
    """What a person does to tables, by name; each says what came of it."""

    def __init__(self, injured: IntoCopied, chance: random.Random) -> None:
        self._injured = injured
        self._chance = chance
        self._removed: set[str] = set()
        self._cancelled: set[str] = set()
        self.made: list[str] = []

    def resync(self) -> str:
        table = self._any()
        self._cancelled.discard(table)
        return self._tell("resync", table)

    def remove(self) -> str:
        table = self._any()
        self._removed.add(table)
        self._cancelled.discard(table)
        return self._tell("remove", table)

    def add(self) -> str:
        if not self._removed:
            return self.remove()
        table = self._chance.choice(sorted(self._removed))
        self._removed.discard(table)
        return self._tell("add", table)

    def pause(self) -> str:
        return self._tell("pause", self._copied())

    def resume(self) -> str:
        return self._tell("resume", self._wished("paused") or self._copied())

    def cancel(self) -> str:
        table = self._copied()
        said = self._tell("cancel", table)
        if "is cancelled" in said:
            self._cancelled.add(table)
        return said

    def make(self) -> str:
        """A new table, which the patterns match; its rows change while it is copied."""
        table = f"made_{len(self.made)}"
        self.made.append(table)
        self._injured.pipeline.execute(*(statement.format(table) for statement in _MAKE))
        return table

    def change(self) -> str:
        """Rows of the new tables move."""
        for table in self.made:
            first = self._chance.randrange(3000)
            self._injured.pipeline.execute(*(each.format(table, first) for each in _CHANGE))
        return f"{len(self.made)} tables"

    def kill(self) -> str:
        kind = self._chance.choice(("driver killed", "worker killed", "snapshot holder killed"))
        COPY_FAULTS[kind](self._injured, self._chance.random())
        return kind

    def bring_back(self) -> None:
        """Let every table come to the others in the end."""
        for table in sorted(self._removed):
            self._tell("add", table)
        for table in sorted(self._cancelled):
            self._tell("resync", table)
        while paused := self._wished("paused"):
            self._tell("resume", paused)
        self._removed.clear()

    def _any(self) -> str:
        return self._chance.choice([t for t in (*_OURS, *self.made) if t not in self._removed])

    def _copied(self) -> str:
        """A table whose copy is under way, if there is one."""
        phases = self._injured.phases()
        under_way = [t for t in (*_OURS, *self.made) if phases.get(t) not in (None, "ready")]
        return self._chance.choice(sorted(under_way) or [self._any()])

    def _wished(self, wish: str) -> str | None:
        listed = json.loads(self._injured.command("tables", "list", "--json"))
        tables = [entry["table"] for entry in listed if entry["wish"] == wish]
        return self._chance.choice(tables).removeprefix("public.") if tables else None

    def _tell(self, command: str, table: str) -> str:
        name = table if table.replace("_", "").isalnum() else f'"{table.strip(chr(34))}"'
        said = self._injured.command("tables", command, name)
        return said.strip().splitlines()[0]


def run_table_seed(
    report: SeedReport,
    count: int,
    servers: tuple[EmbeddedPostgres, EmbeddedPostgres],
    folder: Path,
    say: Say = print,
) -> None:
    """Take ``count`` steps with the tables of a pipeline from the first server to the second.

    Fails unless every table that is to be followed in the end is equal then.
    """
    chance = random.Random(f"tables of {report.seed}")
    on_remove = chance.choice(("keep", "truncate", "drop"))
    tables = {"reconcile": "1s", "on_remove": on_remove}
    source, target = servers
    with IntoCopied(source, target, folder, int(report.seed), tables=tables) as injured:
        say(f"  removed tables: {on_remove}")
        steps = _Steps(injured, chance)
        injured.load.start()
        injured.start()
        injured.wait_ready(*BALANCED)
        injured.reader.judging = True
        for number in range(count):
            injured.check_alive()
            injured.wait_load(chance.randint(1, 60))
            name, step = _pick(steps, chance)
            line = f"{name}: {step()}"
            report.faults.append(line)
            say(f"  {number + 1:3} {line}")
        steps.bring_back()
        injured.settle()
        injured.verify()
        injured.run.stop()
        report.judged(injured)
        report.rows += expect_same_rows(injured.url, injured.target_url, steps.made)


def _pick(steps: _Steps, chance: random.Random) -> tuple[str, Callable[[], str]]:
    weights = {
        steps.resync: 4,
        steps.remove: 3,
        steps.add: 3,
        steps.pause: 3,
        steps.resume: 2,
        steps.cancel: 1,
        steps.make: 1,
        steps.change: 2,
        steps.kill: 2,
    }
    (step,) = chance.choices(list(weights), list(weights.values()))
    return step.__name__, step
