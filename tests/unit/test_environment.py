"""What executors are given, and what starts of Spark are spared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.model.errors import ConfigError
from penstock.spark import class_archive, environment


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write") as caught:
        environment.pack(tmp_path / "missing" / "env.tar.gz")
    assert "--output" in caught.value.remedy


def test_the_driver_finds_its_own_python_where_executors_find_theirs(tmp_path: Path) -> None:
    folder = environment.driver_folder(tmp_path)
    code = "import sys, penstock; print(sys.prefix)"
    done = subprocess.run(
        [environment.PYTHON, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == sys.prefix


def test_an_archive_of_classes_is_taken_only_if_nobody_else_could_have_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = class_archive._archive()
    assert path is not None
    assert path.is_relative_to(tmp_path)
    assert class_archive.archive_options() == ""
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"")
    path.chmod(0o600)
    assert str(path) in class_archive.archive_options()
    path.chmod(0o666)
    assert class_archive.archive_options() == ""
    path.chmod(0o600)
    path.parent.chmod(0o777)
    assert class_archive.archive_options() == ""
