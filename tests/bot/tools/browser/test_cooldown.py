from bot.tools.browser.cooldown import COOLDOWN_S, TRY_S, Cooldown


def test_a_feature_that_failed_is_off_until_one_call_tries_it():
    cooldown = Cooldown()
    assert cooldown.allows(0)
    cooldown.fail(100)
    due = 100 + COOLDOWN_S
    assert [cooldown.allows(now) for now in (100, due - 1, due, due)] == [False, False, True, False]
    cooldown.fail(due + 1)
    assert not cooldown.allows(due + COOLDOWN_S)
    cooldown.reset()
    assert all(cooldown.allows(due) for _ in range(3))


def test_a_try_without_an_outcome_leaves_the_next_one_to_another_call():
    cooldown = Cooldown(off_until=100)
    assert [cooldown.allows(now) for now in (100, 99 + TRY_S, 100 + TRY_S)] == [True, False, True]
