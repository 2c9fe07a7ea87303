import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bot.config.extensions import settings_model
from bot.config.load import (
    MAX_FILE_BYTES,
    Loaded,
    check_start,
    check_used,
    json_schema,
    load,
    resolve_secret,
    secrets_of,
)
from bot.config.settings import Section, settings_by_key
from bot.ports.config_error import ConfigInvalid

Settings = settings_model()

EXAMPLE = Path(__file__).parents[3] / "deploy" / "settings.example.json"


@pytest.fixture
def write(tmp_path: Path):
    def _write(content: object) -> Path:
        path = tmp_path / "settings.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return path

    return _write


@pytest.fixture
def settings_of(write):
    return lambda document: load(write(document), environ={}).settings


def faults_of(path: Path, **environ: str) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        load(path, environ=environ)
    assert caught.value.code == "config_invalid"
    return str(caught.value).split("\n")


@pytest.mark.needs
def test_the_example_of_the_design_loads_without_a_word() -> None:
    loaded = load(EXAMPLE, environ={})
    assert loaded.settings.data == EXAMPLE.parent / "data"
    assert loaded.settings.transports.slack is not None


@pytest.mark.needs
def test_the_defaults_are_those_of_the_example(settings_of) -> None:
    example, bare = load(EXAMPLE, environ={}).settings, settings_of({})
    # What sends text elsewhere, or needs an account, happens only when it is written.
    only_when_written = {"fallback_models", "transports", "data"}
    for name in Settings.model_fields:
        same = getattr(example, name) == getattr(bare, name)
        assert same == (name not in only_when_written), name
    assert bare.fallback_models == ()
    assert bare.transports.slack is None


SECTIONS = [
    section
    for section in Section.__subclasses__()
    if section.__module__ == Section.__module__
    and not any(key.is_required() for key in section.model_fields.values())
]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_a_section_that_is_not_written_has_defaults_that_would_pass_every_check(section: type[Section]):
    values = {
        key: getattr(section.default(), key)
        for key, about in section.model_fields.items()
        if about.alias is None
    }
    assert section.default() == section() == section(**values)
    assert not section.default().model_fields_set


@pytest.mark.needs
def test_the_example_holds_every_key_there_is() -> None:
    written = json.loads(EXAMPLE.read_text())
    known = {field.alias or name for name, field in Settings.model_fields.items()}
    assert set(written) == known - {"$schema"}
    for name in [
        "llm_retry",
        "stream_timeouts_s",
        "budget",
        "limits",
        "compaction",
        "access",
        "tools",
        "observe",
    ]:
        assert set(written[name]) == set(type(getattr(Settings(), name)).model_fields), name


def test_no_file_at_all_means_defaults_in_the_working_directory(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(None, environ={})
    placed = settings_model()().model_copy(update={"data": tmp_path / "data"})
    assert loaded == Loaded(placed, environ={"CREDENTIALS_DIRECTORY": str(tmp_path / "credentials")})


def test_secrets_lie_beside_the_settings_unless_systemd_brings_them(write, tmp_path: Path) -> None:
    path = write({"providers": {"openai": {"api_key": "file:openai_api_key"}}})
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "openai_api_key").write_text("sk-beside\n")
    assert secrets_of(Settings(), {}) == []
    mine = load(path, environ={})
    assert "sk-beside" in secrets_of(mine.settings, mine.environ)
    brought = load(path, environ={"CREDENTIALS_DIRECTORY": str(tmp_path)})
    assert secrets_of(brought.settings, brought.environ) == []


def test_a_relative_data_folder_is_beside_the_file(settings_of, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir("/")
    assert settings_of({"data": "../here"}).data == tmp_path / "../here"
    assert settings_of({"data": "/var/x"}).data == Path("/var/x")


def test_a_tilde_stands_for_home(write) -> None:
    loaded = load(write({"data": "~/bot"}), environ={"HOME": "/home/ann"})
    assert loaded.settings.data == Path("/home/ann/bot")
    assert "HOME" in faults_of(write({"data": "~/bot"}))[0]


def test_all_faults_come_at_once_with_their_paths(write) -> None:
    lines = faults_of(
        write({
            "name": "", "data": "a\0b", "model": "antropic/claude", "fallback_models": ["openai/x", "gpt"],
            "max_tokens": 0, "temperature": 3, "busy": "later", "access": [], "skills": ["a", 1],
            "providers": {"mine": {}, "openai": {"kind": "anthropic"}, "offline": {}, "a/b": {"base_url": "ftp://x"}},
            "limits": {"mailbox": None, "turn_timeout_s": "900"},
            "prices": {"openai/x": {"input": 1}},
            "mcp_servers": {"both": {"command": "a", "url": "http://b"}, "leaky": {"command": "a", "env": {"X_TOKEN": "v"}}},
            "observe": {"metrics_port": 65536}, "tools": {"policy": {"a b": "maybe"}},
        })
    )  # fmt: skip
    assert lines[-1].startswith("Correct this in ")
    assert "settings.json; `threadfast schema`" in lines[-1]
    assert {line.partition(": ")[0] for line in lines[:-1]} == {
        "name", "data", "model", "fallback_models[1]", "max_tokens", "temperature", "busy", "access", "skills[1]",
        "providers.mine.base_url", "providers.openai.kind", "providers.offline", "providers.a/b",
        "providers.a/b.base_url", "limits.mailbox", "limits.turn_timeout_s", "prices.openai/x.output",
        "mcp_servers.both", "mcp_servers.leaky.env.X_TOKEN", "observe.metrics_port",
        "tools.policy.a b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n ", "is empty"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (bytes(range(256)), "not UTF-8"),
        (b'{"name": "a",\n  "data" "b"}', "line 2 column 10"),
        (b'{"name": "a",}', "the comma before this } or ] is one too many; remove it (line 1 column 14)"),
        (
            b'// mine\n{"name": "a"}',
            "this is a comment, and JSON has no comments; remove it (line 1 column 1)",
        ),
        (b'{"name": "a", # mine\n "data": "b"}', "this is a comment"),
        (b'{"name": "a" /* mine */}', "this is a comment"),
        (
            b"{'name': 'a'}",
            "this is another quotation mark, and JSON writes texts and keys in straight double quotes",
        ),
        ("{“name”: 1}".encode(), "this is another quotation mark"),
        (b'{name: "a"}', "this key has no quotes"),
        (b'{"name": a}', "this has no quotes"),
        (b'{"temperature": None}', "JSON writes true, false and null (line 1 column 17)"),
        (b'{"name" = "a"}', "a colon between a key and its value"),
        (b'{"name": "a"\n "data": "b"}', "a comma is missing before this (line 2 column 2)"),
        (b'{"name": "a"', "the end is missing"),
        (b"# mine\nname: a\nlimits:\n  mailbox: 3\n", "this looks like YAML; JSON writes"),
        (b"---\nname: a\n", "this looks like YAML"),
        (b'{"temperature": NaN}', "not valid JSON"),
        (b'{"temperature": 1e999}', "temperature: must be a finite number"),
        (b'{"max_tokens": ' + b"9" * 100_000 + b"}", "out of range"),
        (b'{"max_tokens": 1e30}', "max_tokens: must be a valid integer"),
        (b'{"max_tokens": 99999999999999999999999}', "max_tokens: must be"),
        (b'{"name": "\\ud800"}', "not valid JSON"),
        (b"[]", "one JSON object"),
        (b"null", "one JSON object"),
        (b"[" * 100_000 + b"]" * 100_000, "recursion limit"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "recursion limit"),
        (b'{"x": "' + b"a" * MAX_FILE_BYTES + b'"}', "larger than 1,000,000 bytes"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_file_that_is_no_settings_says_why(write, content: bytes, words: str) -> None:
    assert words in "\n".join(faults_of(write(content)))


def test_a_path_that_is_no_file_says_so(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "is a folder" in faults_of(tmp_path)[0]
    assert "threadfast init" in faults_of(tmp_path / "none.json")[0]
    assert "cannot be read" in faults_of(loop)[0]
    assert "is not a path" in faults_of(tmp_path / "a\0b")[0]


def test_a_byte_order_mark_is_no_fault(settings_of) -> None:
    assert settings_of(b'\xef\xbb\xbf{"name": "b"}').name == "b"


def test_unknown_keys_are_faults_with_their_path_and_the_nearest_known_one(write) -> None:
    mistyped = {"nmae": 1, "limits": {"max_stps": 2}, "providers": {"openai": {"apikey": "sk-x"}}}
    *lines, _ = faults_of(write({"$schema": "x", **mistyped}))
    assert sorted(lines) == [
        'limits.max_stps: unknown key; the nearest known one is "max_steps"',
        'nmae: unknown key; the nearest known one is "name"',
        'providers.openai.apikey: unknown key; the nearest known one is "api_key"',
    ]


def test_a_key_that_stands_twice_is_a_fault_that_names_both_lines(write) -> None:
    *lines, _ = faults_of(
        write(b"""{
  "policy": {"a": [{"b": 1, "c": {"b": 2}}, {"b": 3,
    "b": "\\" \\\\"}]},
  "tools": {"policy": {"shell": "deny"},
            "policy": {}}, "t\\u006fols": {}
}""")
    )
    assert lines[:3] == [
        "policy.a[1].b: stands twice, in line 2 and line 3, and only the last one counts; keep one",
        "tools.policy: stands twice, in line 4 and line 5, and only the last one counts; keep one",
        "tools: stands twice, in line 4 and line 5, and only the last one counts; keep one",
    ]
    assert lines[3].startswith("policy: unknown key")


def test_a_name_that_is_far_from_all_others_suggests_none(write) -> None:
    far = {"timezone": "UTC", "budget": {"limit_usd": {"week": 1}}}
    *lines, _ = faults_of(write(far))
    assert lines == [
        "budget.limit_usd.week: unknown key; there are turn, thread, user_day, schedule_day, day, month",
        "timezone: unknown key",
    ]


def test_a_value_of_another_kind_is_told_with_an_example(write) -> None:
    wrong = {"name": 1, "skills": "a", "limits": [], "verify_providers": "maybe"}
    *lines, _ = faults_of(write(wrong))
    assert set(lines) == {
        'name: must be a text, such as "one"',
        'skills: must be a list, such as ["one", "two"]',
        'limits: must be an object, such as {"key": "value"}',
        "verify_providers: must be true or false",
    }


def test_a_missing_secret_names_the_setup_that_stores_it(settings_of) -> None:
    loaded = settings_of({"model": "openai/x", "transports": {"slack": {}}})
    openai, *slack = check_start(loaded, {}, transports=True)
    assert openai.endswith("set it and start again, or let `threadfast init` ask for it and store it")
    assert slack
    assert all(fault.endswith("or let `threadfast init slack` ask for it and store it") for fault in slack)


def test_an_unknown_skill_is_a_fault_with_its_path_and_the_nearest_there_is(
    settings_of, tmp_path: Path
) -> None:
    loaded = settings_of({"model": "offline/demo", "skills": ["deploi", "deploy"]})
    (none_yet, _) = check_start(loaded, {}, transports=False)
    assert none_yet.endswith("there are none yet")
    for name in ("deploy", "review"):
        (tmp_path / "data" / "skills" / name).mkdir(parents=True)
    folder = tmp_path / "data" / "skills"
    assert check_start(loaded, {}, transports=False) == [
        f'skills[0]: no skill is called "deploi" in {folder}; the nearest known one is "deploy"'
    ]


def test_what_is_wrong_with_discord_is_told_with_its_path(write) -> None:
    discord = {
        "token": "abc.def.canary",
        "tokn": "canary",
        "api_base_url": "discord.com/api/v10",
        "gateway_url": "wss://ann:canary@gateway.discord.gg",
        "streaming": "live",
        "typing": "yes",
        "in_place": [700000000000000101],
    }
    *lines, _ = faults_of(write({"transports": {"discord": discord}, "access": {"roles": [5]}}))
    told = ("token", "api_base_url", "gateway_url", "streaming", "typing", "in_place[0]", "tokn")
    paths = ["access.roles[0]", *(f"transports.discord.{path}" for path in told)]
    assert [line.partition(": ")[0] for line in lines] == paths
    assert "canary" not in "\n".join(lines)


def test_unknown_keys_are_told_beside_faults_too(write) -> None:
    lines = faults_of(write({"providers": {"mine": {"base_uri": "http://127.0.0.1:1/v1"}}}))
    assert [line.partition(": ")[0][-8:] for line in lines[:-1]] == ["base_url", "base_uri"]


def test_a_key_cannot_forge_a_line(write) -> None:
    (fault, _) = faults_of(write({"a\nmodel: wrong": 1}))
    assert fault.startswith("a\\nmodel: wrong: unknown key")


def test_a_flood_of_unknown_keys_is_counted_quickly(write) -> None:
    started = time.process_time()
    *lines, _ = faults_of(write({f"key{i}": i for i in range(50_000)}))
    assert time.process_time() - started < 4
    assert len(lines) == 51
    assert lines[-1] == "... and 49950 more"


@pytest.mark.parametrize(
    "secret", ["xoxb-1234-canary", "sk-ant-canary", "env:", "env:A B", "file:", "env:ghp_" + "a1" * 15]
)
def test_a_literal_secret_is_a_fault_that_does_not_repeat_it(write, secret: str) -> None:
    document = {
        "providers": {"openai": {"api_key": secret}},
        "transports": {"slack": {"bot_token": secret}, "discord": {"token": secret}},
        "mcp_servers": {"m": {"url": "http://127.0.0.1:1", "headers": {"Authorization": secret}}},
    }
    lines = faults_of(write(document))
    assert len(lines) == 5
    assert len(secret) < 6 or secret[4:] not in "\n".join(lines)


def test_an_address_with_a_password_in_it_is_a_fault_that_does_not_repeat_it(write) -> None:
    for url in ("http://ann:canary@host/v1", "https://host/v1?token=canary", "https://host#canary"):
        (fault, _) = faults_of(write({"providers": {"openai": {"base_url": url}}}))
        assert fault.startswith("providers.openai.base_url: ")
        assert "canary" not in fault


def test_null_means_no_limit_where_it_is_offered(settings_of) -> None:
    limits = dict.fromkeys(("turn", "thread", "user_day", "day", "month"))
    unlimited = {"anthropic": {"requests_per_minute": None, "tokens_per_minute": None}}
    loaded = settings_of({"budget": {"limit_usd": limits}, "providers": unlimited})
    assert loaded.budget.limit_usd.day is None
    assert loaded.providers["anthropic"].requests_per_minute is None


def test_a_built_in_provider_changes_only_by_the_keys_that_are_written(settings_of) -> None:
    providers = settings_of({"providers": {"anthropic": {"tokens_per_minute": 7}}}).providers
    assert providers["anthropic"].tokens_per_minute == 7
    assert providers["anthropic"].api_key == "env:ANTHROPIC_API_KEY"
    assert providers["ollama"].base_url == "http://127.0.0.1:11434/v1"


@pytest.mark.parametrize(
    ("ollama", "free"),
    [
        ({}, True),
        ({"base_url": "http://127.0.0.1:11434/v1"}, True),
        ({"base_url": "http://127.0.0.1:4000/v1"}, False),
        ({"base_url": "http://127.0.0.1:4000/v1", "free": True}, True),
        ({"free": False}, False),
    ],
)
def test_only_what_is_known_to_be_free_is_free(settings_of, ollama, free) -> None:
    providers = settings_of({"providers": {"ollama": ollama}}).providers
    assert providers["ollama"].free is free
    assert not providers["openai"].free


def test_the_time_of_one_tool_leaves_the_others_as_they_are(settings_of) -> None:
    tools = settings_of({"tools": {"per_tool": {"shell": 1}}}).tools
    assert tools.per_tool["browser"] == 45_000


@pytest.mark.parametrize(
    "model", ["offline/demo", "ollama/qwen3:8b", "mine/org/model", "openai/gpt-6.1-terra"]
)
def test_models_of_known_providers_are_accepted(settings_of, model: str) -> None:
    document = {"model": model, "providers": {"mine": {"base_url": "http://127.0.0.1:9/v1"}}}
    assert settings_of(document).model == model


@pytest.mark.parametrize(
    "model", ["claude", "offline/other", "nobody/x", "/x", "openai/", "openai/a b", "openai/a\nb"]
)
def test_other_models_are_a_fault(write, model: str) -> None:
    assert faults_of(write({"model": model}))[0].startswith("model: ")


def test_a_secret_comes_from_the_environment_or_a_file_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b" s3cret\r\n\n")
    assert resolve_secret("env:KEY", {"KEY": "abc\n"}) == "abc"
    assert resolve_secret(f"file:{tmp_path}/key", {}) == " s3cret"
    assert resolve_secret("file:key", {"CREDENTIALS_DIRECTORY": str(tmp_path)}) == " s3cret"


def test_a_secret_that_cannot_be_had_is_named_by_its_reference_only(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"canary\xff")
    (tmp_path / "empty").write_bytes(b"\n")
    (tmp_path / "big").write_bytes(b"canary" * 20_000)
    references = [f"file:{tmp_path}{name}" for name in ("/binary", "/empty", "/big", "/none", "")]
    for reference in [*references, "env:UNSET", "env:BLANK"]:
        with pytest.raises(ConfigInvalid) as caught:
            resolve_secret(reference, {"BLANK": ""})
        assert str(caught.value).startswith(f"{reference}: ")
        assert "canary" not in str(caught.value)
    with pytest.raises(ConfigInvalid) as caught:
        resolve_secret("xoxb-canary", {})
    assert "canary" not in str(caught.value)


def test_only_secrets_that_are_used_must_be_there(settings_of) -> None:
    document = {
        "model": "ollama/x",
        "providers": {"other": {"base_url": "http://127.0.0.1:1/v1", "api_key": "env:OTHER"}},
        "transports": {"slack": {}},
    }
    loaded = settings_of(document)
    assert check_used(loaded, {}, transports=False) == []
    assert check_used(loaded, {"SLACK_BOT_TOKEN": "x", "SLACK_APP_TOKEN": "y"}, transports=True) == []
    [fault] = check_used(loaded, {"SLACK_APP_TOKEN": "y"}, transports=True)
    assert fault.startswith("transports.slack.bot_token: ")
    used = loaded.model_copy(update={"fallback_models": ("other/a", "anthropic/b", "offline/demo")})
    (first, second) = check_used(used, {}, transports=False)
    assert first.startswith("providers.other.api_key: env:OTHER: ")
    assert second.startswith("providers.anthropic.api_key: env:ANTHROPIC_API_KEY: ")


SEVERAL = {"anthropic": {"api_keys": ["env:ONE", "env:TWO"]}}


def test_several_keys_take_the_place_of_the_usual_one_and_all_of_them_must_be_there(settings_of) -> None:
    loaded = settings_of({"model": "anthropic/x", "providers": SEVERAL})
    assert loaded.providers["anthropic"].keys == ("env:ONE", "env:TWO")
    assert secrets_of(loaded, {"ONE": "sk-1", "TWO": "sk-2", "ANTHROPIC_API_KEY": "sk-3"}) == ["sk-1", "sk-2"]
    [fault] = check_used(loaded, {"ONE": "sk-1"}, transports=False)
    assert fault.startswith("providers.anthropic.api_keys[1]: env:TWO: ")
    expected = [("env:ONE",), ("env:TWO",)]
    assert [one.providers["anthropic"].keys for one in settings_by_key(loaded, "anthropic")] == expected
    assert settings_by_key(loaded, "openai") == [loaded]


def test_one_key_and_several_are_a_fault(write) -> None:
    both = {"providers": {"anthropic": {**SEVERAL["anthropic"], "api_key": "env:K"}}}
    assert faults_of(write(both))[0].startswith("providers.anthropic.api_keys: takes the place of api_key")
    twice = {"providers": {"anthropic": {"api_keys": ["env:K", "env:K"]}}}
    assert faults_of(write(twice))[0] == "providers.anthropic.api_keys: names a key twice"


def test_an_empty_list_of_keys_changes_nothing(settings_of) -> None:
    assert settings_of({"providers": {"openai": {"api_keys": []}}}).providers["openai"].keys == (
        "env:OPENAI_API_KEY",
    )


def test_a_code_that_never_passes_cannot_be_retried(write) -> None:
    [fault, _] = faults_of(write({"llm_retry": {"retryable": ["timeout", "auth"]}}))
    assert fault.startswith("llm_retry.retryable[1]: ")


def objects(schema: object) -> Iterator[dict[str, object]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for part in schema.values():
            yield from objects(part)


def test_the_json_schema_is_stable_and_describes_every_key() -> None:
    schema = json_schema()
    assert json.dumps(schema) == json.dumps(json_schema())
    assert "$schema" in schema["properties"]
    described = [(name, field) for part in objects(schema) for name, field in part["properties"].items()]
    assert len(described) > 80
    assert [name for name, field in described if not field.get("description")] == []


def only_config_invalid(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        loaded = load(path, environ={})
    except ConfigInvalid as error:
        assert str(error).splitlines()[0]
    else:
        assert loaded.settings.data.is_absolute()


@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_raise_anything_else(tmp_path_factory, content: bytes) -> None:
    only_config_invalid(tmp_path_factory.getbasetemp() / "fuzz.json", content)


KEYS = sorted(
    {name for part in objects(json_schema()) for name in part["properties"]}
    | {"anthropic", "ollama", "x", ""}
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(
        ["env:A", "file:/x", "http://127.0.0.1:1/v1", "anthropic/x", "offline/demo", "ask", "~"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@given(document=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8))
@hypothesis_settings(max_examples=200)
def test_no_document_of_known_keys_raises_anything_else(
    tmp_path_factory, document: dict[str, object]
) -> None:
    only_config_invalid(tmp_path_factory.getbasetemp() / "fuzz.json", json.dumps(document).encode())


def test_a_model_that_is_not_chosen_needs_no_key_before_the_start() -> None:
    named = Settings.model_validate({"transports": {"slack": {}}}, strict=False)
    tokens = {"SLACK_BOT_TOKEN": "x", "SLACK_APP_TOKEN": "y"}
    assert check_used(named, tokens, transports=True) == []
    chosen = named.model_copy(update={"model": "anthropic/claude-sonnet-5-5"})
    assert len(check_used(chosen, tokens, transports=True)) == 1
