"""Lines on disk: what was written comes back, what was damaged does not."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from threads.errors import NewerSchema
from threads.store.checksummed_lines import Lines, encode, intact, read_line, scan, scrub


@dataclass(frozen=True, slots=True)
class Note:
    text: str
    v: int = 1


ADAPTER = TypeAdapter(Note)
any_text = st.text(st.characters(codec=None), max_size=40)


@given(st.lists(any_text, max_size=5))
def test_any_text_comes_back_as_it_was_but_for_lone_surrogates(texts):
    data = b"".join(encode(ADAPTER, Note(text)) for text in texts)
    found = scan(data)
    assert [read_line(ADAPTER, line).text for line in found.good] == [scrub(text) for text in texts]
    assert not found.broken
    assert not found.tail


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4), st.data())
def test_a_flipped_bit_costs_only_the_lines_it_touches(texts, data):
    whole = b"".join(encode(ADAPTER, Note(text)) for text in texts)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    found = scan(bytes(damaged))
    lines = whole.split(b"\n")[:-1]
    assert set(found.good) <= set(lines)
    assert len(found.good) >= len(lines) - 2
    kept = b"".join(line + b"\n" for line in found.good)
    assert len(kept) + sum(map(len, found.broken)) + len(found.tail) >= len(whole) - 2


@given(st.lists(st.text(max_size=20), max_size=4), st.integers(0, 400))
def test_a_torn_tail_is_what_follows_the_last_whole_line(texts, cut):
    whole = b"".join(encode(ADAPTER, Note(text)) for text in texts)
    found = scan(whole[:cut])
    assert whole[: found.end] + found.tail == whole[:cut]
    assert found.tail.count(b"\n") == 0


@given(st.binary(max_size=200))
def test_no_bytes_make_a_scan_fail(data):
    found = scan(data)
    assert all(intact(line) for line in found.good)


def test_a_line_of_a_newer_schema_is_refused_whatever_its_shape():
    for record in (b'{"text":"x","v":2}', b'{"other":1,"v":99}'):
        with pytest.raises(NewerSchema):
            read_line(ADAPTER, record)


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"v":' + b"9" * 5000 + b"}", b"\0\0", b"[1]", b'{"text":1,"v":1}']
)
def test_a_line_of_another_shape_is_a_value_error(line):
    with pytest.raises(ValueError):
        read_line(ADAPTER, line)


@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.binary(max_size=4), max_size=4)), max_size=6))
def test_lines_in_one_piece_are_those_of_the_records_and_each_is_encoded_once(changes):
    encoded: list[list[bytes]] = []

    def encode(record: list[bytes]) -> bytes:
        encoded.append(record)
        return record[0]

    lines, records = Lines(encode), []
    for place, new in changes:
        fresh = [[one] for one in new]
        records[place:] = fresh
        encoded.clear()
        lines.update(records)
        assert lines.data == b"".join(one for [one] in records)
        assert encoded == fresh
