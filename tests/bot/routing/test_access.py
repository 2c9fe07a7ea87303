import pytest

from bot.config.scopes import CurrentSettings
from bot.config.settings import Access, Settings
from bot.routing.access import AccessControl, allowed, is_admin, may_use
from threads.model import Author, Feedback, Incoming, ThreadId

THREAD = ThreadId("slack", "T1", "C1", "1.0")
OTHER_CHANNEL, OTHER_WORKSPACE = ThreadId("slack", "T1", "C2", "1.0"), ThreadId("slack", "T2", "C1", "1.0")
ONE_OF_EACH = Access(users=("U1",), channels=("C1",))
ADMIN = Access(users=(), channels=("C1",), admins=("U9",))
ROLE = Access(users=(), roles=("R1",), channels=("C1",))
MEMBER = Author("U5", roles=("R0", "R1"))


@pytest.mark.parametrize(
    ("access", "author", "thread", "may"),
    [
        pytest.param(Access(), Author("U1"), THREAD, True, id="a star is everyone"),
        pytest.param(Access(users=()), Author("U1"), THREAD, False, id="no user is nobody"),
        pytest.param(Access(channels=()), Author("U1"), THREAD, False, id="no channel is nowhere"),
        pytest.param(ONE_OF_EACH, Author("U1"), THREAD, True, id="user and channel"),
        pytest.param(ONE_OF_EACH, Author("U3"), THREAD, False, id="another user"),
        pytest.param(ONE_OF_EACH, Author("U1"), OTHER_CHANNEL, False, id="another channel"),
        pytest.param(Access(users=("U2",)), Author("U1", name="U2"), THREAD, False, id="a name is not an id"),
        pytest.param(Access(users=("U",)), Author("U1"), THREAD, False, id="part of an id"),
        pytest.param(Access(channels=("T1",)), Author("U1"), THREAD, True, id="a whole workspace"),
        pytest.param(Access(channels=("T1",)), Author("U1"), OTHER_WORKSPACE, False, id="another workspace"),
        pytest.param(ADMIN, Author("U9"), THREAD, True, id="an admin is a user"),
        pytest.param(ADMIN, Author("U9"), OTHER_CHANNEL, False, id="an admin in another channel"),
        pytest.param(ROLE, MEMBER, THREAD, True, id="a role"),
        pytest.param(ROLE, MEMBER, OTHER_CHANNEL, False, id="a role in another channel"),
        pytest.param(ROLE, Author("U5", roles=("R0",)), THREAD, False, id="another role"),
        pytest.param(ROLE, Author("R1"), THREAD, False, id="a user is not a role"),
        pytest.param(Access(users=(), roles=("*",)), MEMBER, THREAD, False, id="a star is not a role"),
    ],
)
def test_who_may_use_the_bot_is_decided_by_ids(access, author, thread, may) -> None:
    assert may_use(access, author, thread) is may
    assert allowed(access, Incoming("m", thread, author, "hi")) is may


def test_only_who_is_listed_is_an_admin() -> None:
    assert is_admin(ADMIN, "U9")
    assert not is_admin(ADMIN, "U1")
    assert not is_admin(Access(), "U1")


SCOPED = """{
    "access": {"roles": ["R1"], "admins": ["U9"]},
    "scopes": {"slack:T1:C1": {"access": {"users": ["U1"]}}, "user:U5": {"access": {"users": []}}}
}"""


@pytest.mark.parametrize(
    ("author", "thread", "may"),
    [
        pytest.param(Author("U1"), THREAD, True, id="who is listed for the channel"),
        pytest.param(Author("U2"), THREAD, False, id="who is listed for everybody only"),
        pytest.param(Author("U2"), OTHER_CHANNEL, True, id="another channel is as for everybody"),
        pytest.param(Author("U6", roles=("R1",)), THREAD, False, id="users of a scope replace the roles too"),
        pytest.param(MEMBER, OTHER_CHANNEL, False, id="a person who is barred, whatever role they have"),
        pytest.param(Author("U9"), THREAD, True, id="an admin is a user everywhere"),
    ],
)
def test_access_is_that_of_the_place_and_the_person(author, thread, may) -> None:
    control = AccessControl(CurrentSettings(Settings.model_validate_json(SCOPED)))
    assert control.allowed(Incoming("m", thread, author, "hi")) is may
    assert control.allowed(Feedback("f", thread, author, "p", "up")) is may


def test_a_change_of_the_settings_counts_with_the_next_event() -> None:
    current = CurrentSettings(Settings())
    control = AccessControl(current)
    assert control.allowed(Incoming("m", THREAD, Author("U1"), "hi"))
    current.replace(Settings(access=Access(users=(), admins=("U9",))))
    assert not control.allowed(Incoming("m", THREAD, Author("U1"), "hi"))
    assert control.is_admin("U9")
