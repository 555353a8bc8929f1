"""What the source says when it refuses a row goes nowhere where rules cover the row's values."""
# ruff: noqa: S608 (statements of a test)

from __future__ import annotations

from penstock.model.table_state import Errored
from penstock.store import pipeline_store
from tests.fix_pipeline import PipelineUnderTest
from tests.integration.test_transformed_pipeline import catch_up, written
from tests.threads_engine import Threads
from tests.tree_of_tables import KEY, PLANTED


def test_a_condition_of_the_copy_that_fails_quotes_no_value(
    pipeline: PipelineUnderTest, threads: Threads
) -> None:
    pipeline.execute(
        "CREATE TABLE people (id int PRIMARY KEY, code text)",
        f"INSERT INTO people VALUES (1, '{PLANTED}')",
    )
    out = {"type": "files", "path": str(pipeline.folder / "out"), "format": "ndjson"}
    pipeline.configure(destination=out, copy={"where": {"people": "code::int > 5"}})
    rules = [{"table": "people", "columns": {"id": "integer_key", "code": "hash"}}]
    pipeline.also(transform={"key": KEY, "rules": rules})
    said: list[str] = []
    catch_up(pipeline, threads, said)
    with pipeline_store(pipeline.config) as store:
        store.load_table_states()
        (state,) = store.get_table_states().values()
    assert isinstance(state, Errored)
    assert "with SQLSTATE" in state.reason
    assert PLANTED not in f"{state.reason}{state.solution}"
    assert not any(PLANTED in line for line in said)
    assert PLANTED not in written(pipeline)
