"""What follows in a run, whatever happens: it ends, within its visits, attempts and returns."""

from hypothesis import given
from hypothesis import strategies as st

from bot.extensions.playbooks.definition import Act, Assert, Bounds, Cases, Next, Playbook, Retry, Stage
from bot.extensions.playbooks.run_state import Failure, Result, Run
from bot.extensions.playbooks.transitions import (
    failed,
    out_of_time,
    passed,
    pause_s,
    retried,
    skipped,
    stopped,
)
from threads.model import Author

FAILED = Failure(type="assertion", message="It does not hold.")
NO = Failure(type="declined", message="A person said no.")
GONE = Failure(type="not_found", message="There is none.", tool="read_file")


def stage(name, **fields):
    retry = fields.pop("retry", {})
    next_ = fields.pop("next", {})
    schema = fields.pop("schema", None)
    return Stage(
        name=name,
        act=Act(prompt="Do it."),
        next=Next(**next_),
        retry=Retry.model_validate(retry),
        **{"assert": Assert(schema=schema)},
        **fields,
    )


def run_of(*stages, **fields):
    playbook = Playbook(name="p", description="P.", limits=Bounds(), stages=stages)
    first = stages[0].name
    run = Run(
        id="r", thread="fake:W:C:1", message_id="m", asker=Author("U1"), words="", playbook=playbook, digest="d",
        stage=first, visits={first: 1}, entries=1,
    )  # fmt: skip
    return run.model_copy(update=fields)


def ok(run, value="done"):
    return passed(run, Result(value=value))


def place(run):
    return run.state, run.stage, run.attempt


def test_a_stage_that_passes_leads_to_the_following_one_and_the_last_to_the_end():
    run = run_of(stage("a"), stage("b"))
    run = ok(run, "1")
    assert (place(run), run.signs, run.results["a"].value) == (("running", "b", 1), {"a": "passed"}, "1")
    assert place(ok(run)) == ("done", "end", 1)


def test_a_value_chooses_the_next_stage_and_another_value_goes_the_usual_way():
    by = {"value": Cases(field="plan.kind", cases={"true": "c", "3": "b"}), "success": "b"}
    run = run_of(stage("a", next=by, schema={}), stage("b"), stage("c"))
    assert ok(run, {"plan": {"kind": True}}).stage == "c"
    assert ok(run, {"plan": {"kind": 3}}).stage == "b"
    assert ok(run, {"plan": "none"}).stage == "b"


def test_attempts_come_before_targets_and_targets_before_the_resolution():
    run = run_of(
        stage("a", retry={"attempts": 2, "backoff_s": 4.0}, next={"failure": "b", "success": "c"}),
        stage("b"),
        stage("c"),
    )
    again = failed(run, FAILED)
    assert (place(again), pause_s(run), pause_s(again)) == (("running", "a", 2), 0, 4)
    assert again.failure == FAILED
    repair = failed(again, FAILED)
    assert (place(repair), repair.failed, repair.signs) == (("running", "b", 1), "a", {"a": "failed"})


def test_the_type_of_a_failure_comes_before_failure():
    run = run_of(stage("a", next={"failure": "b", "on_error": {"declined": "c"}}), stage("b"), stage("c"))
    assert failed(run, FAILED).stage == "b"
    assert failed(run, NO).stage == "c"


def test_a_no_is_not_tried_again():
    assert place(failed(run_of(stage("a", retry={"attempts": 9})), NO)) == ("failed", "a", 1)


def test_an_error_of_a_tool_counts_only_if_the_stage_has_a_target_for_it():
    run = run_of(stage("a", next={"on_error": {"not_found": "b"}, "success": "end"}), stage("b"))
    assert passed(run, Result(value="x"), (GONE,)).stage == "b"
    assert passed(run, Result(value="x"), (GONE.model_copy(update={"type": "timeout"}),)).state == "done"


def test_each_resolution_of_what_cannot_be_recovered():
    skips = failed(run_of(stage("a", unrecoverable="skip"), stage("b")), FAILED)
    assert (place(skips), skips.signs) == (("running", "b", 1), {"a": "skipped"})
    ends = failed(run_of(stage("a"), stage("b")), FAILED)
    assert (place(ends), ends.signs, ends.failure) == (("failed", "a", 1), {"a": "failed"}, FAILED)
    parked = failed(run_of(stage("a", unrecoverable="retry-later", retry={"later": 1}), stage("b")), FAILED)
    assert (place(parked), parked.signs, parked.returns) == (("parked", "a", 1), {"a": "parked"}, 1)
    back = retried(parked)
    assert (place(back), back.signs) == (("running", "a", 1), {})
    assert failed(back, FAILED).state == "failed", "it comes back as often as it may"


def test_a_target_without_a_visit_left_is_no_way_on():
    run = run_of(stage("a", visits=2, next={"failure": "a"}), stage("b"))
    run = failed(run, FAILED)
    assert place(run) == ("running", "a", 1)
    assert failed(run, FAILED).state == "failed"


def test_a_person_may_give_one_more_visit_which_has_an_id_of_its_own():
    run = run_of(stage("a"), stage("b"))
    ended = failed(ok(run), FAILED)
    again = retried(ended, "a")
    assert place(again) == ("running", "a", 1)
    assert again.visit_id != run.visit_id
    assert retried(ended).visit_id != ended.visit_id
    assert place(skipped(ended)) == ("done", "end", 1)
    assert (stopped(again).state, out_of_time(again).state) == ("failed", "failed")


TYPES = ["assertion", "declined", "budget", "timeout", "not_found", "provider"]


@st.composite
def playbooks(draw):
    names = [f"s{n}" for n in range(draw(st.integers(1, 5)))]
    target = st.none() | st.sampled_from([*names, "end"])
    return [
        stage(
            name,
            visits=draw(st.none() | st.integers(1, 3)),
            unrecoverable=draw(st.sampled_from(["skip", "retry-later", "abort"])),
            retry={"attempts": draw(st.integers(1, 3)), "later": draw(st.integers(1, 3))},
            next={
                "success": draw(target),
                "failure": draw(target),
                "on_error": draw(
                    st.dictionaries(st.sampled_from(TYPES), st.sampled_from([*names, "end"]), max_size=2)
                ),
            },
        )
        for name in names
    ]


@given(playbooks(), st.data())
def test_every_run_ends_within_its_bounds(stages, data):
    run, steps = run_of(*stages), 0
    visits = sum(one.most_visits for one in stages)
    most = sum(one.most_visits * one.retry.attempts for one in stages) + 3 * max(
        one.retry.attempts for one in stages
    )
    while run.state in ("running", "parked"):
        steps += 1
        assert steps <= most + 3, "it does not end"
        if run.state == "parked":
            run = retried(run)
            continue
        kind = data.draw(st.sampled_from(["ok", *TYPES]))
        run = ok(run) if kind == "ok" else failed(run, Failure(type=kind, message="no"))
        for one in stages:
            assert run.visits.get(one.name, 0) <= one.most_visits
        assert run.entries <= visits + run.returns
        assert run.returns <= 3
        assert run.stage == "end" or run.attempt <= run.current.retry.attempts
    assert run.over


@given(playbooks(), st.data())
def test_a_run_on_disk_is_the_run_in_memory(stages, data):
    run = run_of(*stages)
    for _ in range(data.draw(st.integers(0, 5))):
        if run.state == "running":
            kind = data.draw(st.sampled_from(["ok", *TYPES]))
            run = (
                ok(run, {"a": [1, None]})
                if kind == "ok"
                else failed(run, Failure(type=kind, message="no"), (GONE,))
            )
    assert Run.model_validate_json(run.model_dump_json()) == run


@given(playbooks(), st.floats(0, 2), st.floats(0, 2), st.data())
def test_no_run_spends_more_than_its_playbook_nor_a_visit_more_than_its_stage(stages, whole, each, data):
    stages = [one.model_copy(update={"act": one.act.model_copy(update={"usd": each})}) for one in stages]
    run = run_of(*stages)
    playbook = run.playbook.model_copy(update={"limits": Bounds(usd=whole)})
    run, spent, of_visit = run.model_copy(update={"playbook": playbook}), 0.0, 0.0
    while run.state == "running":
        left = max(0.0, run.most_usd - (spent - run.before_usd))
        paid = left * data.draw(st.floats(0, 1))
        spent, of_visit = spent + paid, of_visit + paid
        assert spent <= whole + 1e-9
        assert of_visit <= each + 1e-9
        kind = data.draw(st.sampled_from(["ok", *TYPES]))
        after = ok(run) if kind == "ok" else failed(run, Failure(type=kind, message="no"))
        if after.entries != run.entries:
            after, of_visit = after.model_copy(update={"entered_usd": spent}), 0.0
        run = after
