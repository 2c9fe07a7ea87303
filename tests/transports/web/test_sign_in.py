"""People sign in at the page with the identity of their company, and nobody else does in their name."""

from __future__ import annotations

import json
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.config.load import load_bytes
from bot.ports.config_error import ConfigInvalid
from tests.transports.web.chromium import browsing, needs_chromium
from tests.transports.web.provider import (
    come_in,
    lying_provider,
    needs_provider,
    real_provider,
    signing_in_at,
)
from tests.transports.web.site import Visitor, serving_page
from transports.web.sign_in import SIGNED_IN_S

pytestmark = pytest.mark.anyio

ANN, BOB, EVE = "ann@example.org", "bob@example.org", "eve@example.org"
ACCESS = {"access": {"users": [BOB], "admins": [ANN]}}
HEADER = "X-Forwarded-Email"
PROXY = {"web": {"sign_in": {"header": HEADER, "proxies": ["127.0.0.1"]}}}
ODD = [
    "",
    "../web",
    "ann:bob",
    "ann@example.org,bob@example.org",
    "a" * 65,
    "ann\xa0",
    "ann%40example.org",
    "*",
]


@asynccontextmanager
async def behind_a_proxy(tmp_path, **more):
    async with serving_page(tmp_path, ACCESS, **{**PROXY, **more}) as site, Visitor(site) as visitor:
        yield visitor


@pytest.fixture(scope="module")
async def page_at_a_liar(tmp_path_factory):
    async with lying_provider() as liar:
        data, given = tmp_path_factory.mktemp("data"), signing_in_at(liar.issuer)
        async with serving_page(data, ACCESS, **given) as site:
            yield site, liar


@pytest.fixture(scope="module")
async def page_behind_a_proxy(tmp_path_factory):
    async with serving_page(tmp_path_factory.mktemp("data"), ACCESS, **PROXY) as site:
        yield site


@pytest.fixture
async def visitor(page_at_a_liar):
    site, liar = page_at_a_liar
    liar.tell_the_truth()
    openid = site.web._options.sign_in.openid
    openid.issuer, openid._found = liar.issuer, None
    async with Visitor(site) as visitor:
        visitor.liar = liar
        yield visitor


@pytest.fixture
async def proxied(page_behind_a_proxy):
    async with Visitor(page_behind_a_proxy) as visitor:
        yield visitor


async def answer_of(visitor) -> dict[str, str]:
    """Go to the provider's page and sign in there; return its answer."""
    return visitor.liar.allow((await visitor.get("/sign-in")).headers["location"])


async def sign_in(visitor, **changes):
    return await visitor.get("/signed-in", params={**await answer_of(visitor), **changes})


def session_of(visitor) -> str:
    return visitor.cookies.get(visitor.site.web.address.cookie, "")


async def is_out(visitor) -> bool:
    return (await visitor.get("/api/threads")).status_code == 401


# the whole way


@needs_provider
async def test_people_of_a_real_provider_talk_under_the_id_of_their_claim(tmp_path):
    people = {"sub": "1", "email": ANN}, {"sub": "2", "email": BOB}, {"sub": "3", "email": EVE}
    fields = {
        "access": {"users": ["*"], "admins": [ANN]},
        "scopes": {f"user:{EVE}": {"access": {"users": []}}},
    }
    async with (
        real_provider(*people) as issuer,
        serving_page(tmp_path, fields, **signing_in_at(issuer)) as site,
        httpx2.AsyncClient() as away,
    ):
        for sub, person in (("1", ANN), ("2", BOB), ("3", "")):
            async with Visitor(site) as visitor:
                assert "/sign-in" in (await visitor.get("/enter")).text
                theirs = (await visitor.get("/sign-in")).headers["location"]
                back = (await away.post(theirs, data={"sub": sub})).headers["location"]
                answer = await visitor.get(back)
                if not person:
                    assert answer.status_code == 403
                    assert f"{EVE} may not use this bot" in answer.text
                    continue
                assert answer.status_code == 200, answer.text
                await come_in(visitor)
                async with visitor.events("t") as events:
                    said = await visitor.say("hello", "t")
                    assert (await events.until("message", id=said))["author"] == person
                    await events.until("settled", id=said)
                assert (await visitor.get("/look/")).status_code == (200 if person == ANN else 403)


@needs_provider
@needs_chromium
async def test_a_browser_is_in_after_it_was_at_the_site_of_the_provider(tmp_path):
    """Its cookie is strict: it would not be sent with a redirect that another site began."""
    async with real_provider({"sub": "1", "email": ANN}) as issuer:
        elsewhere = signing_in_at(issuer.replace("127.0.0.1", "localhost"))
        async with serving_page(tmp_path, ACCESS, **elsewhere) as site, browsing(site, person=ANN) as page:
            other = await (await page.context.browser.new_context()).new_page()
            await other.goto(site.url)
            await other.click("#sign-in")
            await other.fill("[name=sub]", "1")
            await other.get_by_role("button").first.click()
            await other.wait_for_selector("#text")
            assert other.url == f"{site.url}/"


async def test_who_comes_through_the_proxy_is_who_it_says(proxied):
    proxied.headers[HEADER] = BOB
    assert (await proxied.get("/")).headers["location"] == "/sign-in"
    assert 'url=/"' in (await proxied.get("/sign-in")).text
    await come_in(proxied)
    async with proxied.events("t") as events:
        said = await proxied.say("hello", "t")
        assert (await events.until("message", id=said))["author"] == BOB
    assert (await proxied.get("/look/")).status_code == 403


# the proxy's header


async def test_a_header_from_elsewhere_than_the_proxy_is_refused_and_logged_once(tmp_path, caplog):
    elsewhere = {"web": {"sign_in": {"header": HEADER, "proxies": ["10.0.0.0/8", "::1"]}}}
    async with behind_a_proxy(tmp_path, **elsewhere) as visitor:
        for path in ("/", "/sign-in", "/enter", "/static/page.js", "/api/threads"):
            assert (await visitor.get(path, headers={HEADER: ANN})).status_code == 403
        assert not visitor.cookies
        told = [one.message for one in caplog.records if "web.header_refused" in one.message]
        assert told == [f"web.header_refused: {HEADER} came from 127.0.0.1, no proxy of sign_in"]
        for claimed in ("X-Forwarded-For", "Forwarded", "X-Real-IP"):
            assert (
                await visitor.get("/sign-in", headers={HEADER: ANN, claimed: "10.0.0.1"})
            ).status_code == 403
        assert (await visitor.get("/sign-in")).status_code == 401


@pytest.mark.parametrize("odd", ODD)
async def test_a_header_that_is_no_id_opens_nothing(proxied, odd):
    answer = await proxied.get("/sign-in", headers={HEADER: odd.encode("latin-1")})
    assert (answer.status_code, session_of(proxied)) == (400, "")


async def test_a_header_that_comes_twice_opens_nothing(proxied):
    twice = [(HEADER, ANN), (HEADER.lower(), BOB)]
    assert (await proxied.get("/sign-in", headers=twice)).status_code == 400


async def test_a_session_of_the_proxy_is_nothing_without_its_word_or_with_another(proxied):
    proxied.headers[HEADER] = ANN
    await proxied.get("/sign-in")
    await come_in(proxied)
    assert not await is_out(proxied)
    proxied.headers[HEADER] = BOB
    assert await is_out(proxied)
    del proxied.headers[HEADER]
    assert await is_out(proxied)


async def test_sessions_of_the_proxy_end_when_the_settings_name_none_any_more(tmp_path, proxied):
    await proxied.get("/sign-in", headers={HEADER: ANN})
    session = session_of(proxied)
    async with serving_page(tmp_path, ACCESS) as site, Visitor(site) as visitor:
        visitor.cookies.set(site.web.address.cookie, session)
        assert await is_out(visitor)


async def test_a_browser_without_cookies_is_not_sent_in_circles(proxied):
    again = await proxied.get("/", headers={HEADER: ANN, "Sec-Fetch-Site": "same-origin"})
    assert again.headers["location"] == "/enter"


# the provider's answer


async def test_a_sign_in_asks_with_pkce_state_and_nonce_which_nobody_can_guess(visitor):
    assert (await sign_in(visitor)).status_code == 200
    assert not await is_out(visitor)
    await answer_of(visitor)
    first, second = visitor.liar.asked
    assert first["code_challenge_method"] == "S256"
    assert first["redirect_uri"] == f"{visitor.site.url}/signed-in"
    assert all(first[one] != second[one] for one in ("state", "nonce", "code_challenge"))
    assert len({first["state"], first["nonce"], visitor.liar.exchanged[0]["code_verifier"]}) == 3


FORGED = {
    "issuer": {"iss": "https://evil.example"},
    "audience": {"aud": "other"},
    "no audience": {"aud": None},
    "another client's": {"aud": ["page", "other"], "azp": "other"},
    "expired": {"exp": int(time.time()) - 3600},
    "without an end": {"exp": None},
    "from tomorrow": {"iat": int(time.time()) + 86_400},
    "another nonce": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "nobody": {"sub": None},
    "an address that was not verified": {"email_verified": False},
    "no text": {"email": ["ann@example.org"]},
    "a path": {"email": "../../web"},
    "a line": {"email": "ann@example.org\n"},
    "too long": {"email": "a" * 65},
}


@pytest.mark.parametrize("claims", FORGED.values(), ids=FORGED)
async def test_a_token_with_wrong_claims_opens_nothing(visitor, claims):
    visitor.liar.claims = claims
    answer = await sign_in(visitor)
    assert (answer.status_code, session_of(visitor)) == (403, "")
    assert "This sign-in does not count" in answer.text
    visitor.liar.claims = {}
    assert (await sign_in(visitor)).status_code == 200


SIGNATURES = {
    "none": lambda liar: lambda claims: jwt.encode(claims, None, "none"),
    "secret": lambda liar: (
        lambda claims: jwt.encode(claims, "the-secret-of-the-page-is-long-enough", "HS256")
    ),
    "public key": lambda liar: liar.with_public_key,
    "another key": lambda liar: lambda claims: liar.with_rsa(claims, rsa.generate_private_key(65537, 2048)),
    "unknown name": lambda liar: lambda claims: liar.with_rsa(claims, kid="x"),
    "other kind": lambda liar: lambda claims: liar.with_rsa(claims, kid="e"),
    "cut": lambda liar: lambda claims: liar.with_rsa(claims).rpartition(".")[0] + ".",
    "no token": lambda liar: lambda claims: "x",
}


@pytest.mark.parametrize("sign", SIGNATURES.values(), ids=SIGNATURES)
async def test_a_token_that_the_provider_did_not_sign_opens_nothing(visitor, sign):
    visitor.liar.sign = sign(visitor.liar)
    assert ((await sign_in(visitor)).status_code, session_of(visitor)) == (403, "")
    visitor.liar.sign = visitor.liar.with_ec
    assert (await sign_in(visitor)).status_code == 200


async def test_an_answer_counts_once_and_only_in_the_browser_that_asked(visitor):
    async with Visitor(visitor.site) as other:
        there = (await visitor.get("/sign-in")).headers["location"]
        answer, kept = visitor.liar.allow(there), {**visitor.cookies}
        assert (await other.get("/signed-in", params=answer)).status_code == 403
        mine = visitor.liar.allow((await other.get("/sign-in")).headers["location"])
        assert (await visitor.get("/signed-in", params=mine)).status_code == 403
        assert not visitor.liar.exchanged
        assert (await visitor.get("/signed-in", params=answer)).status_code == 200
        again = visitor.liar.allow(there)
        for params in (answer, again):
            visitor.cookies.update(kept)
            assert (await visitor.get("/signed-in", params=params)).status_code == 403


async def test_a_code_that_another_sign_in_got_is_not_taken(visitor):
    stolen = (await answer_of(visitor))["code"]
    assert (await sign_in(visitor, code=stolen)).status_code == 403  # the verifier differs
    assert session_of(visitor) == ""


ANSWERS = [
    {"state": ""},
    {"state": "x"},
    {"state": "ä"},
    {"iss": "https://evil.example"},
    {"error": "access_denied"},
]


@pytest.mark.parametrize("changes", [*ANSWERS, {"code": ["a", "b"]}, {"state": ["a", "b"]}], ids=str)
async def test_another_answer_is_not_taken(visitor, changes):
    assert (await sign_in(visitor, **changes)).status_code == 403
    assert not visitor.liar.exchanged


async def test_an_answer_that_comes_too_late_is_not_taken(visitor, monkeypatch):
    answer, sessions = await answer_of(visitor), visitor.site.web.sessions
    monkeypatch.setattr("transports.web.sign_in.PENDING_S", -1)
    late = await answer_of(visitor)
    assert (await visitor.get("/signed-in", params=late)).status_code == 403
    visitor.cookies.set(f"{visitor.site.web.address.cookie}-sign-in", "forged")
    assert (await visitor.get("/signed-in", params=answer)).status_code == 403
    assert sessions.unsealed("forged") == {}


async def test_a_session_ends_though_it_is_used_and_is_new_with_each_sign_in(visitor, monkeypatch):
    address, sessions = visitor.site.web.address, visitor.site.web.sessions
    visitor.cookies.set(address.cookie, "planted", domain="127.0.0.1", path="/")
    await sign_in(visitor)
    first = session_of(visitor)
    await sign_in(visitor)
    assert len({first, session_of(visitor), "planted"}) == 3
    assert sessions.person(first) is None
    now, cookie = sessions._now, session_of(visitor)
    monkeypatch.setattr(sessions, "_now", lambda: now() + timedelta(seconds=SIGNED_IN_S - 5))
    assert sessions.person(cookie).id == ANN
    monkeypatch.setattr(sessions, "_now", lambda: now() + timedelta(seconds=SIGNED_IN_S + 5))
    assert sessions.person(cookie) is None


async def test_leaving_ends_the_session_and_no_other_site_can_end_it(visitor):
    await sign_in(visitor)
    await come_in(visitor)
    elsewhere = {"Origin": "https://evil.example"}
    assert (await visitor.post("/api/leave", json={}, headers=elsewhere)).status_code == 403
    assert (await visitor.post("/api/leave", json={}, headers={"x-threadfast-token": "x"})).status_code == 403
    cookie = session_of(visitor)
    assert (await visitor.post("/api/leave", json={})).status_code == 200
    visitor.cookies.set(visitor.site.web.address.cookie, cookie)
    assert await is_out(visitor)
    assert (await visitor.get("/")).headers["location"] == "/enter"  # and not in again by itself


async def test_the_way_back_leads_to_the_page_and_nowhere_else(visitor):
    for name in ("to", "next", "return", "redirect_uri"):
        there = await visitor.get("/sign-in", params={name: "https://evil.example"})
        assert "evil" not in there.headers["location"]
    answer = await sign_in(visitor, to="https://evil.example", redirect_uri="//evil.example")
    assert "evil" not in answer.text
    assert "evil" not in str(answer.headers)


async def test_cookies_are_for_this_page_alone_and_for_no_script(tmp_path):
    async with lying_provider() as liar:
        given = signing_in_at(liar.issuer)
        given["web"]["public_url"] = "https://bot.example.org"
        async with serving_page(tmp_path, ACCESS, **given) as site:
            plain = f"http://127.0.0.1:{site.web.address.port}"
            async with httpx2.AsyncClient(base_url=plain, headers={"Host": "bot.example.org"}) as visitor:
                began = await visitor.get("/sign-in")
                pending = began.headers["set-cookie"]
                sent = {"Cookie": pending.partition(";")[0]}
                answer = await visitor.get(
                    "/signed-in", params=liar.allow(began.headers["location"]), headers=sent
                )
                session, gone = answer.headers.get_list("set-cookie")
    for cookie in (pending, session, gone):
        assert cookie.startswith("__Host-threadfast-443")
        assert {"HttpOnly", "Secure", "Path=/"} <= {*cookie.split("; ")}
        assert "Domain" not in cookie
    assert "SameSite=strict" in session
    assert "SameSite=lax" in pending


async def test_a_claim_may_be_in_the_userinfo_but_only_of_the_same_person(visitor):
    visitor.liar.claims, visitor.liar.userinfo = {"email": None}, {"sub": "2", "email": ANN}
    assert (await sign_in(visitor)).status_code == 403
    visitor.liar.userinfo = {"email": ANN, "email_verified": False}
    assert (await sign_in(visitor)).status_code == 403
    visitor.liar.userinfo = {"email": ANN}
    assert (await sign_in(visitor)).status_code == 200


@pytest.mark.parametrize(
    "said",
    [
        {"issuer": "https://evil.example"},
        {"authorization_endpoint": "http://evil.example/"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
    ],
    ids=str,
)
async def test_a_provider_that_is_another_or_reads_in_the_clear_is_not_used(visitor, said, caplog):
    visitor.liar.said = said
    assert (await visitor.get("/sign-in")).status_code == 503
    assert "web.sign_in_refused" in caplog.text
    visitor.site.web._options.sign_in.openid.issuer = "http://127.0.0.1:1"
    assert (await visitor.get("/sign-in")).status_code == 503  # nobody is there


async def test_without_a_sign_in_there_is_none(tmp_path):
    async with serving_page(tmp_path, ACCESS) as site, Visitor(site) as visitor:
        assert (await visitor.get("/sign-in")).status_code == 404
        assert (await visitor.get("/signed-in")).status_code == 404
        assert (await visitor.get("/enter", headers={HEADER: ANN})).status_code == 200
        assert "/sign-in" not in (await visitor.get("/enter")).text


async def test_a_link_opens_the_page_beside_either_way(visitor):
    await visitor.enter(ANN)
    assert not await is_out(visitor)


@pytest.mark.parametrize(
    ("sign_in", "fault"),
    [
        ({}, "give either header and proxies, or issuer and client_id"),
        ({"header": HEADER, "issuer": "https://id.example"}, "give either"),
        ({"header": HEADER}, "proxies: name the addresses"),
        ({"header": HEADER, "proxies": ["proxy.example"]}, "proxies: 'proxy.example' does not"),
        ({"header": HEADER, "proxies": ["10.0.0.1/8"]}, "has host bits set"),
        ({"header": "X Y", "proxies": ["::1"]}, "must be the name of a header"),
        ({"issuer": "https://id.example"}, "client_id: the provider has one"),
        ({"issuer": "http://id.example", "client_id": "x"}, "issuer: must be an https address"),
    ],
)
def test_settings_that_would_let_anybody_in_are_a_fault(sign_in, fault):
    data = json.dumps({"transports": {"web": {"sign_in": sign_in}}}).encode()
    with pytest.raises(ConfigInvalid, match=fault):
        load_bytes(data, Path("settings.json"), environ={})
