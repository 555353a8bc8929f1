"""The package that docs/your_own_destination.md builds, text by text, passes the suite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "your_own_destination.md"

_LOAD = """
import sys
from pathlib import Path
from penstock.config import load_pipeline
from penstock.destination.registry import make_destination
config = load_pipeline(Path(sys.argv[1]))
destination = make_destination(config.destination_type, config.destination_options, config.name)
destination.check()
destination.open()
print(type(destination).__module__, destination.committed())
"""

_QUERY = """
import sqlite3, sys
from pathlib import Path
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.chunk_rows import ChunkRows, copy_chunks
from penstock.testing.contract.deliveries import ITEMS, deliver_cut, opened
from test_penstock_sqlite import SqliteAdapter
destination, builder = opened(SqliteAdapter(Path("shop.db"))), ChangeBuilder()
copy_chunks(destination, ChunkRows(ITEMS, "0", [("1", "a"), ("2", "b"), ("3", "c")]))
with builder.transaction():
    builder.update(ITEMS, "1", "changed")
    builder.delete(ITEMS, key=["2", None])
    builder.insert(ITEMS, "4", "new")
deliver_cut(destination, builder)
print(*sorted(new for (new,) in sqlite3.connect("shop.db").execute(sys.argv[1])), sep=chr(10))
"""


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def _files() -> dict[str, str]:
    """Every block begins with the name of its file; those of one file follow each other."""
    found: dict[str, list[str]] = defaultdict(list)
    for block in (*_blocks("toml"), *_blocks("python")):
        name, _, text = block.partition("\n")
        found[name.removeprefix("# ")].append(text)
    return {name: "\n\n".join(texts) for name, texts in found.items()}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package as if it were installed: its files, and the entry points of its metadata."""
    folder = tmp_path / "penstock-sqlite"
    folder.mkdir()
    for name, text in _files().items():
        (folder / name).write_text(text)
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(about)
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("".join(lines))
    return folder


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_it_passes_the_contract_suite(package: Path) -> None:
    ended = _python(package, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "-W", "error")
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    passed = re.search(r"(\d+) passed", ended.stdout)
    assert passed is not None
    assert int(passed[1]) > 40
    # What it cannot do is said.
    assert "sqlite is not TablesFailAlone" in ended.stdout


def test_a_pipeline_file_names_it(package: Path) -> None:
    (part,) = _blocks("yaml")
    file = package / "shop.yaml"
    file.write_text(
        "name: shop\nsource:\n  url: postgresql://penstock@db/shop\n"
        "  tables: {include: ['public.*']}\n" + part
    )
    ended = _python(package, "-c", _LOAD, str(file))
    assert ended.stdout == "penstock_sqlite None\n", ended.stderr


def test_the_query_gives_the_current_rows(package: Path) -> None:
    (query,) = _blocks("sql")
    ended = _python(package, "-c", _QUERY, query)
    assert ended.returncode == 0, ended.stderr
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(row["id"], row["name"]) for row in rows] == [(1, "changed"), (3, "c"), (4, "new")]


def test_its_failpoint_is_known_by_its_name(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = (
        "from penstock.destination.registry import make_destination as make;"
        "make('sqlite', {'path': 'shop.db'}, 'shop')"
    )
    monkeypatch.setenv("PENSTOCK_FAILPOINTS", "sqlite.written=kill")
    assert _python(package, "-c", make).returncode == 0
    monkeypatch.setenv("PENSTOCK_FAILPOINTS", "sqlite.writen=kill")
    assert "no destination declares 'sqlite.writen'" in _python(package, "-c", make).stderr


def test_it_is_as_short_as_the_page_promises() -> None:
    code = _files()["penstock_sqlite.py"].splitlines()
    assert len([line for line in code if line.strip()]) < 170
