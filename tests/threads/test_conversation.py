"""A conversation in memory reads on from where it was read last."""

from __future__ import annotations

import dataclasses

from threads.model import History, Message, Text, known, places_of


def said(source: str) -> Message:
    return Message("user", (Text("hi"),), source=source)


def test_a_fact_is_found_by_reading_only_what_is_new():
    read: list[list[str]] = []

    def count(before: int | None, new) -> int:
        read.append([message.source for message in new])
        return (before or 0) + len(new)

    history = History()
    assert known(history, count) == 0
    history.extend([said("a"), said("b")])
    assert known(history, count) == known(history, count) == 2
    history.extend([said("c")])
    assert known(history, count) == 3
    assert read == [[], ["a", "b"], ["c"]]


def test_a_conversation_that_is_replaced_is_read_anew():
    history = History()
    history.extend([said("a"), said("b"), said("a")])
    assert places_of(history, "a") == [0, 2]
    history.replace([said("b")])
    assert places_of(history, "a") == []
    assert places_of(history, "b") == [0]


def test_a_fact_about_a_plain_list_takes_no_memory():
    assert places_of([said("a")], "a") == [0]


def test_a_message_with_its_time_is_the_same_in_every_other_field():
    # a new field is another argument
    fields = {field.name: object() for field in dataclasses.fields(Message)}
    stamped = Message(**fields).stamped("2026-11-21T10:00:00+00:00")
    assert {name: getattr(stamped, name) for name in fields} == {**fields, "at": "2026-11-21T10:00:00+00:00"}
