from bot.config.settings import Access
from bot.routing.access import allowed, is_admin, may_use
from threads.model import Author, Incoming, ThreadId

THREAD = ThreadId("slack", "T1", "C1", "1.0")


def says(user: str = "U1", thread: ThreadId = THREAD) -> Incoming:
    return Incoming("m", thread, Author(user, name="U2"), "hi")


def test_a_star_is_everyone() -> None:
    assert allowed(Access(), says())


def test_an_empty_list_is_nobody() -> None:
    assert not allowed(Access(users=()), says())
    assert not allowed(Access(channels=()), says())
    assert not is_admin(Access(), "U1")


def test_user_and_channel_must_both_be_listed() -> None:
    access = Access(users=("U1",), channels=("C1",))
    assert allowed(access, says())
    assert not allowed(access, says("U3"))
    assert not allowed(access, says(thread=ThreadId("slack", "T1", "C2", "1.0")))


def test_ids_count_and_names_do_not() -> None:
    assert not allowed(Access(users=("U2",)), says("U1"))
    assert not allowed(Access(users=("U",)), says("U1"))


def test_a_workspace_or_guild_admits_all_its_channels() -> None:
    access = Access(channels=("T1",))
    assert allowed(access, says())
    assert not allowed(access, says(thread=ThreadId("slack", "T2", "C1", "1.0")))


def test_an_admin_is_a_user_but_only_in_served_channels() -> None:
    access = Access(users=(), channels=("C1",), admins=("U9",))
    assert is_admin(access, "U9")
    assert not is_admin(access, "U1")
    assert allowed(access, says("U9"))
    assert not may_use(access, Author("U9"), ThreadId("slack", "T1", "C2", "1.0"))


def test_a_role_admits_those_who_have_it_and_a_star_is_no_role() -> None:
    access = Access(users=(), roles=("R1",), channels=("C1",))
    member = Author("U5", roles=("R0", "R1"))
    assert may_use(access, member, THREAD)
    assert not may_use(access, member, ThreadId("slack", "T1", "C2", "1.0"))
    assert not may_use(access, Author("U5", roles=("R0",)), THREAD)
    assert not may_use(access, Author("R1"), THREAD)
    assert not may_use(Access(users=(), roles=("*",)), member, THREAD)
