"""OpenAI's models on Azure: keys, tokens of Entra ID, and the paths of both APIs."""

from __future__ import annotations

import json
from functools import partial
from urllib.parse import parse_qs

import pytest

from bot.config.built_in_extensions import has_module
from bot.config.settings import Settings
from bot.extensions.openai.extension import extension
from tests.bot.tools.site import certificate
from tests.fakes.anthropic import Text
from tests.fakes.cloud import cloud
from tests.fakes.openai import chat_answer, response_answer
from tests.serving import serving

needs_azure = pytest.mark.skipif(not has_module("azure.identity"), reason="the extra azure is not installed")


def settings(url: str, **more) -> dict:
    return {"providers": {"azure": {"kind": "azure", "base_url": url, **more}}}


async def test_a_thread_is_answered_behind_the_new_api_with_a_key(tmp_path):
    async with cloud(lambda _: response_answer(Text("Hello, world"))) as (url, calls):
        given = settings(f"{url}/openai/v1", api_key="env:KEY")
        async with serving(tmp_path, given, model="azure/gpt-5", environ={"KEY": "azure-key"}) as chat:
            assert (await chat.say("hi")).text == "Hello, world"
            assert "$0.00" in (await chat.say("/usage")).text
    (called,) = calls
    assert (called.url, json.loads(called.body)["model"]) == ("/openai/v1/responses", "gpt-5")
    assert (called.headers["api-key"], called.headers.get("authorization")) == ("azure-key", None)


async def test_a_deployment_of_a_dated_version_has_a_path_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_VERSION", "2024-10-21")
    async with cloud(lambda _: chat_answer(Text("Hello, world"))) as (url, calls):
        given = settings(url, api_key="env:KEY")
        async with serving(tmp_path, given, model="azure/gpt-4o", environ={"KEY": "azure-key"}) as chat:
            assert (await chat.say("hi")).text == "Hello, world"
    assert calls[0].url == "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21"
    assert (calls[0].headers["api-key"], calls[0].headers.get("authorization")) == ("azure-key", None)


@needs_azure
async def test_a_workload_identity_is_exchanged_for_a_token_once(tmp_path, monkeypatch):
    import azure.identity

    (tmp_path / "federated").write_text("token-of-the-cluster")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    without_discovery = partial(azure.identity.DefaultAzureCredential, disable_instance_discovery=True)
    monkeypatch.setattr(azure.identity, "DefaultAzureCredential", without_discovery)

    def entra(called):
        if "openid-configuration" in called.url:
            named = {name: f"{where[0]}/{name}" for name in ("token_endpoint", "authorization_endpoint")}
            return {"issuer": f"{where[0]}/our-tenant/v2.0", **named}
        return {"access_token": "entra-token", "expires_in": 3600, "token_type": "Bearer"}

    async with (
        cloud(entra, certificate(tmp_path / "ca.pem")) as where,
        cloud(lambda _: response_answer(Text("Hello"))) as (url, calls),
    ):
        identity = {"TENANT_ID": "our-tenant", "CLIENT_ID": "our-bot", "AUTHORITY_HOST": where[0]}
        for name, value in {**identity, "FEDERATED_TOKEN_FILE": str(tmp_path / "federated")}.items():
            monkeypatch.setenv(f"AZURE_{name}", value)
        async with serving(tmp_path, settings(f"{url}/openai/v1"), model="azure/gpt-5") as chat:
            for _ in range(2):
                assert (await chat.say("hi")).text == "Hello"
    assert [called.headers["authorization"] for called in calls] == ["Bearer entra-token"] * 2
    (exchange,) = [parse_qs(called.body.decode()) for called in where[1] if called.body]
    assert exchange["client_assertion"] == ["token-of-the-cluster"]
    assert exchange["client_id"] == ["our-bot"]
    assert "https://cognitiveservices.azure.com/.default" in exchange["scope"][0]


def test_what_is_missing_is_named_with_how_to_get_it(monkeypatch):
    monkeypatch.setattr("bot.extensions.openai.extension.has_module", lambda _: False)
    address, install = extension.faults(Settings.model_validate({"providers": {"own": {"kind": "azure"}}}))
    assert address.startswith("providers.own.base_url: is required, such as https://RESOURCE.openai")
    assert install == "providers.own.api_key: without a key it takes: pip install 'threadfast[azure]'"
