"""The command line: help, errors as people see them, exit codes."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from penstock.changelog.changelog import ChangeLog, LogIdentity
from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.storage.object_check import check_objects
from penstock.cli import check as check_command
from penstock.cli.destroy import remove_change_log
from penstock.cli.main import app, main
from penstock.config import PipelineConfig, load_pipeline
from penstock.model.errors import LogError, SourceError
from penstock.model.lsn import Frontier
from penstock.model.quantity_text import bytes_text
from penstock.source.postgres.preflight.all_checks import CheckResult
from penstock.spark import executor_check
from penstock.spark import preflight as checks

COMMANDS = [command.name for command in app.registered_commands]


@pytest.fixture(autouse=True)
def no_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    # Set first, so that what the command itself sets is undone after the test as well.
    monkeypatch.setenv("PENSTOCK_DEBUG", "")
    monkeypatch.delenv("PENSTOCK_DEBUG")


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    code = caught.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def unreachable(tmp_path: Path) -> Iterator[Path]:
    """A right pipeline file whose server does not listen."""
    with socket.socket() as taken:
        # Bound but not listening: nobody else gets the port, and connecting is refused.
        taken.bind(("127.0.0.1", 0))
        path = tmp_path / "shop.yaml"
        path.write_text(
            "name: shop\n"
            f"source: {{url: 'postgresql://app:hunter2@127.0.0.1:{taken.getsockname()[1]}/shop'}}\n"
            "destination: {type: discard}\n"
        )
        yield path


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    text = capsys.readouterr().out
    assert "Example:\n    export SHOP_URL=" in text
    assert all(f"\n  {name} " in text for name in COMMANDS if name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(name, "--help") == 0
    _, example = capsys.readouterr().out.split("Example:\n")
    assert f"\n    penstock {name} " in "\n" + example


def test_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.main.version", lambda package: f"1.2.3 of {package}")
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == "penstock 1.2.3 of penstock\n"


def test_unknown_commands_and_missing_arguments_exit_with_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code("chek") == 2
    assert "No such command 'chek'" in capsys.readouterr().err
    assert exit_code("check") == 2
    assert "Missing argument 'FILE'" in capsys.readouterr().err


def test_a_wrong_file_is_a_message_with_remedy_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text("name: shop\nsorce: {}\n")
    for command in ("check", "init", "status", "destroy"):
        assert exit_code(command, str(path)) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("Error: ")
        assert 'sorce: unknown key; did you mean "source"?' in captured.err
        assert "\nWhat to do: " in captured.err
        assert "Traceback" not in captured.err


def test_an_unreachable_source_is_a_message_and_exit_code_1(
    unreachable: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["init"], ["status"], ["destroy", "--yes"]):
        assert exit_code(command[0], str(unreachable), *command[1:]) == 1
        captured = capsys.readouterr()
        assert "nothing listens there" in captured.err
        assert "What to do: " in captured.err
        assert "hunter2" not in captured.out + captured.err
        assert "Traceback" not in captured.err


def test_check_lists_every_result_without_a_server(
    unreachable: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code("check", str(unreachable)) == 1
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0].startswith("failed   connection: No connection to database 'shop'")
    assert lines[1].startswith("         what to do: Start the server")
    assert "skipped  wal_level: not checked: there is no connection" in lines
    assert any(line.startswith("passed   change log: ") for line in lines)
    assert lines[-1].startswith("3 passed, 1 failed, ")
    assert "hunter2" not in captured.out


def test_check_fails_only_for_failures(
    unreachable: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [CheckResult("a", "passed", "fine"), CheckResult("b", "warning", "hm", "do [this]")]
    monkeypatch.setattr(checks, "run_all_checks", lambda config: results)
    assert exit_code("check", str(unreachable)) == 0
    assert capsys.readouterr().out.splitlines() == [
        "passed   a: fine",
        "warning  b: hm",
        "         what to do: do [this]",
        "1 passed, 1 warning",
    ]


def test_check_shows_a_table_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    check_command.show_results([CheckResult("wal_level", "failed", "is [replica]", "ALTER x")])
    text = capsys.readouterr().out
    assert "\x1b[" in text
    assert "is [replica]" in text
    assert "→ ALTER x" in text


def test_spark_submit_starts_one_destination_at_a_time(
    unreachable: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them would share its one JVM, which has room for one Spark context."""
    one, several = (
        "destination: {type: discard}",
        "destinations: {a: {type: discard}, b: {type: discard}}",
    )
    unreachable.write_text(unreachable.read_text().replace(one, several))
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert exit_code("run", str(unreachable)) == 2
    said = capsys.readouterr().err
    assert "several destinations (a, b), and spark-submit starts one driver" in said
    assert "--only NAME" in said


def test_destroy_asks_first(
    unreachable: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def confirm(text: str, abort: bool) -> None:
        asked.append(text)
        raise typer.Abort

    monkeypatch.setattr("typer.confirm", confirm)
    assert exit_code("destroy", str(unreachable)) != 0
    (question,) = asked
    assert "pipeline shop from postgresql://app@127.0.0.1" in question
    # It never came as far as connecting, which would have been refused with a message.
    assert "nothing listens there" not in capsys.readouterr().err


class TestDebug:
    @pytest.fixture(autouse=True)
    def failing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(path: Path, only: str | None) -> PipelineConfig:
            raise SourceError("it broke", remedy="mend it")

        monkeypatch.setattr(check_command, "chosen_deliveries", fail)

    def test_without(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_code("check", "x") == 1
        assert capsys.readouterr().err == "Error: it broke\nWhat to do: mend it\n"

    def test_option(self) -> None:
        with pytest.raises(SourceError, match="it broke"):
            main(["--debug", "check", "x"])

    def test_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PENSTOCK_DEBUG", "1")
        with pytest.raises(SourceError, match="it broke"):
            main(["check", "x"])

    def test_bugs_are_owned_up_to(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail(path: Path, only: str | None) -> PipelineConfig:
            raise KeyError("lost")

        monkeypatch.setattr(check_command, "chosen_deliveries", fail)
        assert exit_code("check", "x") == 1
        text = capsys.readouterr().err
        assert text.startswith("Error: Unexpected KeyError: 'lost'\nWhat to do: This is a bug")
        assert "Traceback" not in text


class TestRemovingTheChangeLog:
    @pytest.fixture
    def config(self, tmp_path: Path) -> PipelineConfig:
        return PipelineConfig.model_validate(
            {
                "name": "shop",
                "source": {"url": "postgresql://localhost/shop"},
                "change_log": {"path": str(tmp_path / ".penstock" / "shop" / "log")},
                "destination": {"type": "discard"},
            }
        )

    @pytest.fixture
    def log(self, config: PipelineConfig) -> ChangeLog:
        log = ChangeLog(config.change_log.path)
        log.claim_identity(LogIdentity("1", 1, "shop", "penstock_shop_01234567"))
        log.set_tables({})
        log.set_capture_report({})
        log.set_reader("shop", Frontier(1, 2))
        return log

    def test_all_of_it(self, config: PipelineConfig, log: ChangeLog, tmp_path: Path) -> None:
        assert remove_change_log(config) == [f"change log {log.root.path}"]
        assert list(tmp_path.iterdir()) == []
        assert remove_change_log(config) == []

    def test_neighbours_stay(self, config: PipelineConfig, log: ChangeLog, tmp_path: Path) -> None:
        (tmp_path / ".penstock" / "other").mkdir()
        remove_change_log(config)
        assert [path.name for path in (tmp_path / ".penstock").iterdir()] == ["other"]

    def test_somebody_elses_files_stop_it(self, config: PipelineConfig, log: ChangeLog) -> None:
        (Path(log.root.path) / "thesis.txt").touch()
        with pytest.raises(LogError, match=r"holds more than a change log \(thesis\.txt\)"):
            remove_change_log(config)
        assert log.reader("shop") is not None

    def test_they_do_before_anything_is_removed(
        self, unreachable: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        log = load_pipeline(unreachable).change_log.path
        Path(log).mkdir(parents=True)
        (Path(log) / "thesis.txt").touch()
        assert exit_code("destroy", str(unreachable), "--yes") == 1
        said = capsys.readouterr().err
        assert "holds more than a change log (thesis.txt); nothing was removed" in said

    def test_what_a_check_left_that_was_killed_goes_too(
        self, config: PipelineConfig, log: ChangeLog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(FolderStorage, "delete", lambda *_: None)
        check_objects(log.root)

        def killed(_probe: object) -> list[CheckResult]:
            raise KeyboardInterrupt

        monkeypatch.setattr(executor_check, "_asked", killed)
        with pytest.raises(KeyboardInterrupt):
            executor_check.check_executors([config])
        assert len([name for name in log.root.entries() if name.startswith("check")]) == 2
        assert remove_change_log(config) == [f"change log {log.root.path}"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "unknown"),
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (2**43, "8.0 TiB"),
    ],
)
def test_bytes_text(count: int | None, text: str) -> None:
    assert bytes_text(count) == text


def test_no_command_waits_for_pandas() -> None:
    """It comes with the decoders, and takes longer to load than capture takes to start."""
    code = "import sys, penstock.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = done.stdout.split()
    assert "penstock.cli.destroy" in modules
    assert "pandas" not in modules
