"""Events for those who follow: all of them, in order, and said where some are gone."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from penstock.serve.observe.events import MISSED, Event, Events


def told(events: Events, count: int, pipeline: str = "shop", first: int = 0) -> None:
    for number in range(first, first + count):
        events.tell(pipeline, "said", f"{pipeline} {number}")


async def followed(events: Events, pipeline: str | None, after: int | None) -> list[Event]:
    """Until there are no more."""
    found: list[Event] = []
    async with aclosing(events.follow(pipeline, after)) as parts:
        async for part in parts:
            if not part:
                return found
            found += part
    return found


def texts(events: Events, pipeline: str | None = "shop", after: int | None = None) -> list[str]:
    return [event.message for event in asyncio.run(followed(events, pipeline, after))]


def test_of_a_burst_nothing_is_left_out() -> None:
    events = Events()
    told(events, 1)
    first = events.latest("shop")[-1].number
    told(events, 1000, first=1)
    assert texts(events, after=first) == [f"shop {number}" for number in range(1, 1001)]


def test_a_client_without_a_place_begins_with_the_last_ones() -> None:
    events = Events()
    told(events, 1000)
    assert texts(events) == [f"shop {number}" for number in range(800, 1000)]


def test_what_is_not_kept_any_more_is_said() -> None:
    events = Events(most=300)
    told(events, 1)
    first = events.latest("shop")[-1].number
    told(events, 1000, first=1)
    found = asyncio.run(followed(events, "shop", first))
    assert found[0].event == MISSED
    assert [event.message for event in found[1:]] == [f"shop {n}" for n in range(701, 1001)]
    # Who goes on from there has been told already.
    assert events.next("shop", after=found[0].number)[0].message == "shop 701"


def test_one_pipeline_s_flood_hides_nothing_of_another() -> None:
    events = Events(most=300)
    told(events, 1)
    first = events.latest("shop")[-1].number
    told(events, 250, "quiet")
    told(events, 400)
    told(events, 250, "quiet", first=250)
    found = asyncio.run(followed(events, None, first))
    numbers = [event.number for event in found]
    assert numbers == sorted(numbers)
    said = [event.message for event in found if event.event != MISSED]
    assert [text for text in said if text.startswith("quiet")] == [
        f"quiet {n}" for n in [*range(50, 250), *range(250, 500)][-300:]
    ]
    assert {event.pipeline for event in found if event.event == MISSED} == {"shop", "quiet"}
    assert len([text for text in said if text.startswith("shop")]) == 300
