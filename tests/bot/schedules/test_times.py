"""When something is due: against brute force, over summer time both ways, and for strings that mean harm."""

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.ports.errors import ToolInvalidInput
from bot.schedules.times import find_zone, format_time, next_after, parse_cron, parse_time

NOW = datetime(2026, 11, 22, 11, 0, 30, tzinfo=UTC)
MIN_INTERVAL = timedelta(minutes=15)


def utc(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)


BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
SUMMER_TIME = {
    "the hour that is missing in Berlin":
        ("30 2 * * *", BERLIN, utc(2027, 3, 27, 12), [utc(2027, 3, 28, 1), utc(2027, 3, 29, 0, 30)]),
    "the hour that comes twice in Berlin":
        ("30 2 * * *", BERLIN, utc(2027, 10, 30, 12), [utc(2027, 10, 31, 0, 30), utc(2027, 11, 1, 1, 30)]),
    "asked in the second of those hours":
        ("45 2 * * *", BERLIN, utc(2027, 10, 31, 1, 30), [utc(2027, 11, 1, 1, 45)]),
    "every day at nine in Berlin, into summer":
        ("0 9 * * *", BERLIN, utc(2027, 3, 27, 7), [utc(2027, 3, 27, 8), utc(2027, 3, 28, 7), utc(2027, 3, 29, 7)]),
    "the hour that is missing in New York":
        ("30 2 * * *", NEW_YORK, utc(2027, 3, 13, 12), [utc(2027, 3, 14, 7), utc(2027, 3, 15, 6, 30)]),
    "the hour that comes twice in New York":
        ("30 1 * * *", NEW_YORK, utc(2027, 11, 6, 12), [utc(2027, 11, 7, 5, 30), utc(2027, 11, 8, 6, 30)]),
    "every half hour, through the hour that comes twice":
        ("*/30 * * * *", BERLIN, utc(2027, 10, 31), [utc(2027, 10, 31, h, m) for h, m in [(0, 30), (1, 0), (1, 30), (2, 0)]]),
    "two times of the missing hour are one":
        ("0,30 2 * * *", BERLIN, utc(2027, 3, 27, 12), [utc(2027, 3, 28, 1), utc(2027, 3, 29, 0), utc(2027, 3, 29, 0, 30)]),
}  # fmt: skip


@pytest.mark.parametrize(("cron", "zone", "after", "expected"), SUMMER_TIME.values(), ids=SUMMER_TIME)
def test_summer_time_moves_no_occurrence_and_doubles_none(cron, zone, after, expected):
    found = []
    for _ in expected:
        after = next_after(cron, zone, after)
        found.append(after)
    assert found == expected


minutes = st.sets(st.integers(0, 59), min_size=1, max_size=3)
hours = st.sets(st.integers(0, 23), min_size=1, max_size=4)
weekdays = st.sets(st.integers(0, 6), min_size=1, max_size=3)


@settings(max_examples=60)
@given(
    minutes,
    hours,
    weekdays,
    st.sampled_from(["UTC", "Asia/Kolkata", "America/Bogota"]),
    st.integers(0, 500_000),
)
def test_the_next_occurrence_is_the_first_minute_that_fits(minute, hour, weekday, zone, ahead):
    cron = f"{_some(minute)} {_some(hour)} * * {_some(weekday)}"
    after = NOW + timedelta(minutes=ahead)
    moment = after.replace(second=0) + timedelta(minutes=1)
    while True:
        local = moment.astimezone(ZoneInfo(zone))
        if local.minute in minute and local.hour in hour and local.isoweekday() % 7 in weekday:
            break
        moment += timedelta(minutes=1)
    assert next_after(cron, zone, after) == moment


@settings(max_examples=150)
@given(minutes, hours, st.sampled_from([BERLIN, NEW_YORK, "Australia/Lord_Howe"]), st.integers(0, 8760 * 4))
def test_occurrences_only_go_forward_and_none_is_left_out_where_the_clock_stands_still(
    minute, hour, zone, quarter
):
    cron = f"{_some(minute)} {_some(hour)} * * *"
    after = NOW + timedelta(minutes=15 * quarter)
    for _ in range(4):
        found = next_after(cron, zone, after)
        assert after < found <= after + timedelta(hours=26)
        local = found.astimezone(ZoneInfo(zone))
        gap = (found - timedelta(hours=2)).astimezone(ZoneInfo(zone)).utcoffset() != local.utcoffset()
        assert gap or (local.minute in minute and local.hour in hour)
        after = found


HOSTILE = [
    "", "* * * *", "* * * * * *", "0 0 * * * *", "*/0 * * * *", "*/99999999999999999999 * * * *x", "0 0 30 2 *",
    "0 0 31 2,4,6,9,11 *", "0 0 */31 2 1#5", "60 * * * *", "0 24 * * *", "-1 * * * *", "0 9 * * 8", "@daily",
    "0 9 * * MONDAY", "0 9 * * ١", "٣ 9 * * 1", "0 9 * * 1#6", "1/1/1/1/1/1/1/1 * * * x", "* " * 5_000,
    "0," * 60 + "0 9 * * *", "9" * 90 + " * * * *", "0 9 * * L", "a\x00b * * * *", "* * * * *", "*/5 * * * *",
    "0,1 9 1 1 *", "0,50 0-23 * * *", "50 23,0 * * *;",
]  # fmt: skip


@pytest.mark.parametrize("cron", HOSTILE)
def test_a_cron_expression_that_is_none_or_comes_too_often_or_never_is_refused_at_once(cron):
    began = time.process_time()
    with pytest.raises(ToolInvalidInput) as refused:
        parse_cron(cron, BERLIN, NOW, MIN_INTERVAL)
    assert time.process_time() - began < 10
    assert refused.value.suggestion
    assert len(str(refused.value)) < 200


@given(st.text(st.sampled_from("0123456789*/,-L#W ?JANMON"), max_size=40))
def test_any_string_is_taken_or_refused_with_a_word(cron):
    try:
        text, first = parse_cron(cron, BERLIN, NOW, MIN_INTERVAL)
    except ToolInvalidInput:
        return
    assert first > NOW
    assert text == " ".join(cron.split())


def test_a_quarter_of_an_hour_is_not_too_often_also_across_midnight():
    assert parse_cron("  */15 *  * * * ", "UTC", NOW, MIN_INTERVAL) == (
        "*/15 * * * *",
        utc(2026, 11, 22, 11, 15),
    )
    with pytest.raises(ToolInvalidInput, match="more often than every 15"):
        parse_cron("0,55 0,23 1,15-16 * *", "UTC", NOW, MIN_INTERVAL)


@pytest.mark.parametrize(
    "zone",
    ["Europe/Berlim", "berlin", "CEST", "../../etc/passwd", "/etc/localtime", "localtime", "posixrules", "America",
     "\x00", "Z" * 999],
)  # fmt: skip
def test_a_zone_that_is_not_in_the_database_is_refused(zone):
    with pytest.raises(ToolInvalidInput) as refused:
        find_zone(zone)
    assert "Europe/Berlin" in refused.value.suggestion
    assert len(str(refused.value)) < 100


def test_a_zone_may_be_written_in_any_case():
    assert find_zone("europe/BERLIN").key == BERLIN


@pytest.mark.parametrize(
    ("written", "zone", "expected"),
    [
        ("2026-11-23T09:00", BERLIN, utc(2026, 11, 23, 8)),
        ("2026-11-23T09:00+01:00", NEW_YORK, utc(2026, 11, 23, 8)),
        ("2026-11-23T09:00Z", "", utc(2026, 11, 23, 9)),
        ("2027-03-28T02:30", BERLIN, utc(2027, 3, 28, 1, 30)),  # the clock shows 03:30 then
        ("2027-10-31T02:30", BERLIN, utc(2027, 10, 31, 0, 30)),  # the first of the two
    ],
)
def test_a_time_is_read_with_its_offset_or_in_its_zone(written, zone, expected):
    assert parse_time(written, zone, NOW) == expected


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-23T09:00", "tomorrow", "", "2026-11-22T11:00Z", "2028-01-01T00:00Z", "9999-12-31T23:59-23:59",
        "0001-01-01T00:00+23:59", "2026-11-23T09:00Z" + "0" * 1000, "2026-02-30T09:00Z",
    ],
)  # fmt: skip
def test_a_time_that_is_none_or_past_or_too_far_is_refused(written):
    with pytest.raises(ToolInvalidInput):
        parse_time(written, "", NOW)


def test_a_time_is_told_as_people_say_it_there():
    assert format_time(utc(2026, 11, 23, 8), BERLIN, NOW) == "Mon 23 Nov 09:00 Europe/Berlin"
    assert format_time(utc(2027, 1, 5, 8), "Gone/Away", NOW) == "Tue 5 Jan 2027 08:00 UTC"


def _some(values: set[int]) -> str:
    return ",".join(map(str, sorted(values)))
