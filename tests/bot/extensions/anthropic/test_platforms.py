"""Claude on Bedrock and Vertex AI, with the SDK that signs: paths, signatures, tokens and frames as they document."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bot.config.built_in_extensions import has_module
from bot.config.settings import Settings
from bot.extensions.anthropic.extension import extension
from tests.fakes.anthropic import Text, answer
from tests.fakes.cloud import cloud
from tests.fakes.http import Reply, error
from tests.serving import serving

BEDROCK, VERTEX = "anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet-4-5@20250929"
needs_boto = pytest.mark.skipif(not has_module("boto3"), reason="the extra bedrock is not installed")
needs_google = pytest.mark.skipif(not has_module("google.auth"), reason="the extra vertex is not installed")


@pytest.fixture
def aws(monkeypatch):
    keys = {
        "AWS_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": "its-secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in keys.items():
        monkeypatch.setenv(name, value)


def settings(kind: str, url: str, **more) -> dict:
    model = f"{kind}/{BEDROCK if kind == 'bedrock' else VERTEX}"
    return {"providers": {kind: {"kind": kind, "base_url": url, **more}}, "model": model}


def frame(body: bytes, kind: str = "chunk", is_error: bool = False) -> bytes:
    """Return a message of vnd.amazon.eventstream: lengths, headers, a body, and the checksums of both."""
    names = {":event-type": kind, ":message-type": "event", ":content-type": "application/json"}
    if is_error:
        names = {":exception-type": kind, ":message-type": "exception", ":content-type": "application/json"}
    headers = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in names.items()
    )
    head = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    head += struct.pack("!I", binascii.crc32(head))
    return head + headers + body + struct.pack("!I", binascii.crc32(head + headers + body))


def framed(reply: Reply) -> Reply:
    events = [step.partition(b"data: ")[2].strip() for step in reply.steps]
    chunks = [frame(json.dumps({"bytes": base64.b64encode(one).decode()}).encode()) for one in events if one]
    return Reply(tuple(chunks), 200, (("content-type", "application/vnd.amazon.eventstream"),))


def signed_anew(called, url: str) -> str:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    names = called.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    headers = {name: called.headers[name] for name in names}
    request = AWSRequest("POST", url + called.url, headers, called.body)
    request.context["timestamp"] = called.headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIATEST", "its-secret"), "bedrock", "eu-central-1")
    return signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request)


@needs_boto
async def test_a_thread_is_answered_by_bedrock_and_each_request_has_a_signature_that_fits(tmp_path, aws):
    reply = framed(answer(Text("Hello, world")))
    async with cloud(lambda _: reply) as (url, calls), serving(tmp_path, settings("bedrock", url)) as chat:
        assert (await chat.say("hi")).text == "Hello, world"
        assert "$0.00" in (await chat.say("/usage")).text
    (called,) = calls
    body = json.loads(called.body)
    assert called.url == f"/model/{BEDROCK}/invoke-with-response-stream"
    assert not body.keys() & {"model", "stream"}
    assert body["anthropic_version"]
    assert called.headers["authorization"].endswith(f"Signature={signed_anew(called, url)}")
    assert "/eu-central-1/bedrock/aws4_request" in called.headers["authorization"]


SLOW_DOWN = frame(b'{"message": "slow down"}', "throttlingException", is_error=True)


@needs_boto
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (framed(answer(Text("Hello"))).keep(3, SLOW_DOWN), "trouble reaching my AI provider"),
        (error(403, {"message": "not yours"}), "does not accept my key"),
    ],
    ids=["midway", "refused"],
)
async def test_a_fault_of_bedrock_is_one_of_the_model(tmp_path, aws, reply, words):
    async with cloud(lambda _: reply) as (url, _), serving(tmp_path, settings("bedrock", url)) as chat:
        assert words in (await chat.say("hi")).text


@needs_boto
@pytest.mark.parametrize("missing", ["AWS_REGION", "AWS_ACCESS_KEY_ID"])
async def test_without_a_region_or_credentials_nothing_is_sent_and_people_are_told(
    tmp_path, aws, monkeypatch, missing
):
    from anthropic.lib.aws import _auth

    _auth._get_session.cache_clear()
    for name in (missing, "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    async with cloud(lambda _: {}) as (url, calls), serving(tmp_path, settings("bedrock", url)) as chat:
        assert "does not accept my key" in (await chat.say("hi")).text
    assert calls == []


@needs_boto
async def test_a_key_of_bedrock_goes_out_as_it_is(tmp_path, aws):
    async with cloud(lambda _: framed(answer(Text("Hello")))) as (url, calls):
        given = settings("bedrock", url, api_key="env:KEY")
        async with serving(tmp_path, given, environ={"KEY": "bedrock-key"}) as chat:
            await chat.say("hi")
    assert calls[0].headers["authorization"] == "Bearer bedrock-key"


@needs_google
async def test_a_thread_is_answered_by_vertex_with_a_token_of_the_service_account(tmp_path, monkeypatch):
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def reply(called):
        return (
            {"access_token": "ya29.test", "expires_in": 3600}
            if called.url == "/token"
            else answer(Text("Hello, world"))
        )

    async with cloud(reply) as (url, calls):
        account = {
            "type": "service_account",
            "client_email": "bot@p.example",
            "private_key": pem,
            "token_uri": f"{url}/token",
        }
        (tmp_path / "account.json").write_text(json.dumps({**account, "project_id": "our-project"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
        monkeypatch.setenv("CLOUD_ML_REGION", "europe-west1")
        async with serving(tmp_path, settings("vertex", f"{url}/v1")) as chat:
            assert (await chat.say("hi")).text == "Hello, world"
            assert "$0.00" in (await chat.say("/usage")).text
    token, called = calls
    assertion = parse_qs(token.body.decode())["assertion"][0]
    claims = jwt.decode(
        assertion, key.public_key(), ["RS256"], audience="https://oauth2.googleapis.com/token"
    )
    assert (claims["iss"], "cloud-platform" in claims["scope"]) == ("bot@p.example", True)
    parent = "/v1/projects/our-project/locations/europe-west1/publishers/anthropic/models"
    assert called.url == f"{parent}/{VERTEX}:streamRawPredict"
    assert called.headers["authorization"] == "Bearer ya29.test"
    expected = {"stream", "anthropic_version"}
    assert json.loads(called.body).keys() & {"model", "stream", "anthropic_version"} == expected


@pytest.mark.parametrize("kind", ["bedrock", "vertex"])
def test_what_is_not_installed_is_named_with_how_to_install_it(monkeypatch, kind):
    monkeypatch.setattr("bot.extensions.anthropic.extension.has_module", lambda _: False)
    given = Settings.model_validate({"providers": {"own": {"kind": kind}}})
    assert list(extension.faults(given)) == [
        f"providers.own.kind: {kind} takes: pip install 'threadfast[{kind}]'"
    ]
