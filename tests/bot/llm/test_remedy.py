"""What an admin is told of a model that fails until a person acts."""

from bot.config.settings import Settings
from bot.llm.remedy import explain_to_operator
from bot.ports.errors import (
    AllProvidersFailed,
    ApiNotFound,
    ModelUnavailable,
    ModelWithheld,
    PaymentRequired,
    PriceUnknown,
    Unauthorized,
)
from bot.wording import UNREACHABLE
from threads.errors import StoreUnavailable
from threads.wording import explain

SETTINGS = Settings.model_validate(
    {"providers": {"mine": {"base_url": "http://127.0.0.1:1/v1", "api_key": "file:/secret/place/mine_key"}}}
)
NEXT = "`threadfast init` sets another key or model; `threadfast why 7f3a` tells more. (ref 7f3a)"


def told(*chain):
    return explain_to_operator(AllProvidersFailed(chain[-1][1], chain), "7f3a", SETTINGS)


def test_a_key_is_named_by_its_variable_or_its_file_and_never_by_a_path():
    assert told(("anthropic/x", Unauthorized("sk-x"))) == (
        f"Anthropic does not accept the key in ANTHROPIC_API_KEY. {NEXT}"
    )
    assert told(("mine/x", PaymentRequired())) == (
        f"mine says that the account of the key in the file mine_key is out of credit and needs topping up. {NEXT}"
    )


def test_a_wrong_address_is_named_by_its_setting():
    assert told(("mine/x", ApiNotFound("Error code: 404"))) == (
        "mine has no such API at the address in providers.mine.base_url. It usually ends in /v1, and redirects are "
        f"not followed. {NEXT}"
    )


def test_a_model_that_settings_keep_out_is_not_told_as_unknown():
    assert told(("mine/x", ModelWithheld("No endpoints found matching your data policy"))) == (
        "mine has the model x, but the settings of its account, or `params` in settings.json, allow no server that "
        f"has it. {NEXT}"
    )


def test_two_models_of_one_account_are_one_fault_and_two_accounts_are_two():
    one = told(("openai/a", Unauthorized()), ("openai/b", Unauthorized()))
    assert one.count("does not accept") == 1
    two = told(("openai/a", Unauthorized()), ("anthropic/b", PaymentRequired()))
    assert "OPENAI_API_KEY" in two
    assert "ANTHROPIC_API_KEY is out of credit" in two


def test_what_passes_by_itself_keeps_its_sentence_and_what_does_not_is_added():
    down = ("openai/a", ModelUnavailable("503"))
    assert told(down) == explain(ModelUnavailable(), "7f3a")
    mixed = told(("anthropic/b", Unauthorized()), down)
    assert mixed.startswith(f"{UNREACHABLE} Anthropic does not accept the key in ANTHROPIC_API_KEY. ")


def test_a_price_that_is_not_known_is_told_with_the_line_to_write_to_an_admin_alone():
    error = PriceUnknown("the price of mine/x is not known. In settings.json write …")
    assert explain_to_operator(error, "7f3a", SETTINGS) == (
        "The price of mine/x is not known. In settings.json write … (ref 7f3a)"
    )
    assert "settings.json" not in explain(error, "7f3a")


def test_other_failures_are_told_as_to_everybody():
    error = StoreUnavailable("/data: full")
    assert explain_to_operator(error, "7f3a", SETTINGS) == explain(error, "7f3a")
