"""The ledger is the fold of its records, and its own records fold to the same ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from threads.journal.deduplication import DEDUPE_AT_LEAST
from threads.journal.records import RECENT, Intent, Ledger, Posted, Received, Settled, Started
from threads.model import Author, ThreadId, message_key

ids = st.fixed_dictionaries(
    {
        "thread_id": st.sampled_from(["f:W:C1:1", "f:W:C2:1"]),
        "message_id": st.sampled_from("abc"),
        "at": st.just("2026"),
    }
)
record = st.one_of(
    ids.map(lambda i: Received(**i, author=Author("u"), text="x")),
    ids.map(lambda i: Started(**i, attempt=1, correlation_id="r")),
    ids.map(lambda i: Intent(**i, text="t", post="reply", outcome="answered")),
    ids.map(lambda i: Posted(**i, platform_id="p")),
    ids.flatmap(
        lambda i: st.sampled_from(["answered", "undelivered"]).map(lambda o: Settled(**i, outcome=o))
    ),
)


def fold(records):
    """Fold, but settle no message twice: no life of a message does that."""
    ledger = Ledger()
    for entry in records:
        if not (
            isinstance(entry, Settled) and ledger.knows(key_of(entry)) and key_of(entry) not in ledger.pending
        ):
            ledger.apply(entry)
    return ledger


def key_of(entry):
    return message_key(ThreadId.parse(entry.thread_id), entry.message_id)


@given(st.lists(record, max_size=12))
def test_a_compacted_journal_folds_to_the_same_ledger(records):
    ledger = fold(records)
    again = fold(ledger.records())
    assert again.settled.keys() == ledger.settled.keys()
    assert {k: (o.attempts, o.intent, o.platform_id) for k, o in again.pending.items()} == {
        k: (o.attempts, o.intent, o.platform_id) for k, o in ledger.pending.items()
    }
    assert again.undelivered.keys() == ledger.undelivered.keys()


@given(st.lists(record, max_size=12))
def test_what_was_settled_is_never_owed_again(records):
    ledger = fold(records)
    assert not ledger.pending.keys() & ledger.settled.keys()
    for entry in records:
        if isinstance(entry, Received):
            ledger.apply(entry)
    assert not ledger.pending.keys() & ledger.settled.keys()


def test_ids_are_kept_for_an_hour_and_a_floor_of_them_for_longer():
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    old, young = ((now - timedelta(minutes=m)).isoformat(timespec="milliseconds") for m in (61, 59))
    ledger = Ledger()
    for n in range(DEDUPE_AT_LEAST + 30):
        at = old if n < 20 else young
        ledger.apply(Settled(thread_id="f:W:C:1", message_id=f"m{n}", outcome="answered", at=at))
    ledger.forget(now)
    assert len(ledger.settled) == DEDUPE_AT_LEAST + 10
    assert not ledger.knows("f:W:C:m19")
    assert ledger.knows("f:W:C:m20")


def test_a_second_id_is_known_for_as_long_as_the_first_however_many_came_after():
    ledger = Ledger()
    for n in range(RECENT + 50):
        said = Received(
            thread_id="f:W:C1:1", message_id=f"m{n}", alias=f"twin{n}", author=Author("u"), text="x"
        )
        ledger.apply(said)
        ledger.apply(next(iter(ledger.pending.values())).settled("answered"))
    again = fold(ledger.records())
    assert again.aliases == ledger.aliases
    assert len(again.aliases) == RECENT + 50
