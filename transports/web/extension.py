"""The page in the browser as an extension."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bot.config.transports import served
from bot.host.extension import Extension, TransportHost, TransportKind
from bot.ports.status import NoStatus
from transports.web.settings import SETTINGS, WebSettings

if TYPE_CHECKING:
    from bot.host.checks import Context, Findings
    from transports.web.client import WebTransport


def _open(host: TransportHost) -> WebTransport:
    from transports.web.page import make_page

    return make_page(host)


def _about(_: str, web: WebSettings) -> str:
    return f"the page at {web.public_url or f'{web.host}, port {web.port}'}"


async def _check(context: Context, name: str) -> Findings:
    """Check who may use the page, its certificate, and that its address can be had or answers."""
    import ssl

    from threads.errors import TransportFatal
    from transports.shared.checks import Finding
    from transports.web.page import address_of
    from transports.web.server import listen

    web, access = served(context.settings)[name], context.settings.access
    assert isinstance(web, WebSettings)
    if not (access.users or access.admins):
        fix = 'Name them, as in "access": {"users": ["ann"]}; then `threadfast web link --person ann`.'
        yield Finding("web", "warn", "access names nobody", "Nobody can use the page.", fix)
    async for finding in _check_sign_in(context, web):
        yield finding
    address = address_of(web)
    try:
        if web.tls_certificate:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                web.tls_certificate, web.tls_key
            )
        if not context.running:
            listen(address).close()
    except (OSError, TransportFatal) as error:
        yield Finding("web", "fail", str(error), "The page cannot be served.", "Correct transports.web.")
        return
    status = context.running_bot
    states = {} if isinstance(status, NoStatus) else {one.name: one.state for one in status.transports}
    found = states.get("web", "unknown") if context.running else "can be served"
    yield Finding("web", "ok", f"{address.url}: {found}")


async def _check_sign_in(context: Context, web: WebSettings) -> Findings:
    """Check that the provider answers as the settings say, and whom it would let in."""
    from contextlib import aclosing

    from bot.ports.config_error import ConfigInvalid
    from transports.shared.checks import Finding
    from transports.web.openid import NotSignedIn
    from transports.web.page import sign_in_of

    said = web.sign_in
    if said and "*" in context.settings.access.users:
        fix = "Name people in access.users, unless all whom it knows are meant."
        whom = f"everybody whom {said.issuer or said.header} names may use the bot"
        yield Finding("web sign-in", "warn", whom, "Strangers may get in.", fix)
    if said and said.issuer and not context.offline:
        try:
            made = sign_in_of(context.settings, web, context.environ)
            assert made
            assert made.openid
            async with aclosing(made.openid.http):
                await made.openid.check()
        except (ConfigInvalid, NotSignedIn) as error:
            fix = "Correct transports.web.sign_in, or see whether the provider can be reached from here."
            yield Finding("web sign-in", "fail", f"{said.issuer}: {error}", "Nobody can sign in.", fix)
        else:
            yield Finding("web sign-in", "ok", f"{said.issuer} answers")


extension = Extension(
    "web",
    "serves the page in the browser",
    transports={"web": TransportKind(SETTINGS, _open, _check, about=_about)},
)
