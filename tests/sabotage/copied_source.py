"""A copy of the source in a temporary folder, and tests that run against it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fix_postgres import BUNDLED_VERSION
from tests.sabotage import outcomes
from tests.sabotage.a_break import ROOT, SOURCE, Break

# For what a test has started and would leave behind.
_FAREWELL_SECONDS = 30.0


@dataclass(frozen=True)
class TestRun:
    """What one call of pytest said. ``code`` is None where it did not end in time."""

    __test__ = False

    code: int | None
    outcomes: dict[str, str]
    output: str

    def of(self, test: str) -> list[str]:
        """What became of a test, with each of its parameters unless the name has some."""
        return [
            outcome
            for name, outcome in self.outcomes.items()
            if name == test or name.startswith(f"{test}[")
        ]

    @property
    def last_words(self) -> str:
        lines = [line for line in self.output.splitlines() if line.strip()]
        return "\n".join(lines[-15:])


class CopiedSource:
    """The source below ``folder``. Whatever is started with its environment imports the copy, as
    PYTHONPATH comes before the path of the editable installation, also in child processes and in
    the workers of Spark.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder
        # With its bytecode, which holds as long as the times of the files do.
        shutil.copytree(ROOT / SOURCE, folder / SOURCE)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(folder / "src"),
            "PENSTOCK_PROPERTIES": "unshrunk",
            "PENSTOCK_TEST_PG": str(BUNDLED_VERSION),
            outcomes.COPY: str(folder),
            outcomes.OUTCOMES: str(folder / "outcomes.jsonl"),
        }

    def apply(self, broken: Break) -> str:
        """Break the copy; says what is wrong with the result as code, which should be nothing: a
        test that fails for that notices no guarantee.
        """
        file = broken.apply(self.root)
        module = file.relative_to(self.root / "src").with_suffix("")
        self._environment[outcomes.BROKEN] = ".".join(module.parts)
        ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821,E9"]
        return subprocess.run(
            [*ruff, "--quiet", str(file)], capture_output=True, text=True, check=False
        ).stdout

    def test(self, tests: Sequence[str], seconds: float) -> TestRun:
        """Run tests by their node ids, for so many seconds at most; of those with parameters what
        every push runs, which has to notice by itself.
        """
        pytest = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
        process = subprocess.Popen(
            [*pytest, "-p", "tests.sabotage.outcomes", "-m", "not release", *tests],
            env=self._environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return TestRun(None, self._outcomes(), _ended(process))
        return TestRun(process.returncode, self._outcomes(), output)

    def _outcomes(self) -> dict[str, str]:
        """By test. One that failed stays so, whatever is said of it afterwards."""
        file = Path(self._environment[outcomes.OUTCOMES])
        found: dict[str, str] = {}
        for line in file.read_text().splitlines() if file.exists() else ():
            test, outcome = json.loads(line)
            found.setdefault(test, outcome)
        return found


def _ended(process: subprocess.Popen[str]) -> str:
    """End pytest as Ctrl-C does, so that fixtures take down what they started; its output."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=_FAREWELL_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]
