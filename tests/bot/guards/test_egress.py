import ipaddress
import socket
import threading
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.guards import egress
from bot.guards.addresses import denial_reason
from bot.guards.egress import Egress, Resolver, parse_allowed
from bot.guards.urls import parse_url
from bot.ports.errors import ToolDenied, ToolError, ToolNotFound, ToolTimeout

PUBLIC = "93.184.215.14"
PUBLIC6 = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"

HOSTILE = {  # a word of the refusal: addresses that are refused so
    "link-local": [
        "http://169.254.169.254/latest/meta-data/", "http://169.254.170.2/v2/credentials",
        "http://[64:ff9b::169.254.169.254]/", "http://[fe80::1]/",
    ],
    "number in disguise": [
        "http://2852039166/latest/meta-data/", "http://0xa9fea9fe/", "http://0xA9.0xFE.0xA9.0xFE/",
        "http://0251.0376.0251.0376/", "http://0251.254.169.254/", "http://169.254.43518/",
        "http://169.16689662/", "http://169.254.169.0xfe/", "http://127.1/", "http://127.0.1/",
        "http://2130706433/", "http://017700000001/", "http://0x7f.1/", "http://127.0.0.1.5/", "http://0/",
    ],
    "in disguise": [
        "http://[::ffff:169.254.169.254]/", "http://[::ffff:a9fe:a9fe]/",
        "http://[0:0:0:0:0:ffff:a9fe:a9fe]/", "http://[::ffff:0:7f00:1]/", "http://[::ffff:8.8.8.8]/",
    ],
    "reserved": [
        "http://[::169.254.169.254]/", "http://[64:ff9b:1::a9fe:a9fe]/", "http://192.0.0.8/",
        "http://240.0.0.1/", "http://255.255.255.255/", "http://[100::1]/", "http://[5f00::1]/",
    ],
    "tunnel": [
        "http://[2002:a9fe:a9fe::1]/", "http://[2001:0:a9fe:a9fe::1]/", "http://192.88.99.1/",
        "http://[2002:7f00:1::]/",
    ],
    "metadata": [
        "http://[fd00:ec2::254]/", "http://[fd20:ce::254]/", "http://100.100.100.200/",
        "http://168.63.129.16/", "http://metadata.google.internal/computeMetadata/v1/",
        "http://metadata.goog/", "http://METADATA.GOOGLE.INTERNAL/",
    ],
    "private network": [
        "http://instance-data/", "http://localhost/", "http://LocalHost:8080/", "http://app.localhost/",
        "http://intranet/", "http://printer.local/", "http://vault.service.internal/",
        "http://nas.home.arpa/", "http://wiki.corp/", "http://abcdefghij.onion/",
    ],
    "number in disguise|not a name": ["http://169.254.169.254./"],
    "letters": [
        "http://①⑥⑨.②⑤④.①⑥⑨.②⑤④/", "http://１６９.２５４.１６９.２５４/", "http://169。254。169。254/",
        "http://doc\u212a.com/",  # the Kelvin sign is no k
        "http://exa\u00admple.com/",  # a soft hyphen
        "http://ｅxample.com/",
        "http://example\u2024com/",  # one dot leader
        "http://xn--a.com/", "http://xn--.com/",
    ],
    "user name": [
        "http://169.254.169.254%2f@example.com/", "http://user:secret@example.com/",
        "http://example.com@127.0.0.1/", "http://127.0.0.1@example.com/",
        "http://example.com:80@127.0.0.1/", "http://@example.com/", "http://example.com\\@127.0.0.1/",
        "http://example.com;@x/",
    ],
    "loopback": [
        "http://127.0.0.1/", "http://127.8.9.10:8080/", "http://[::1]/",
        "http://[0000:0000:0000:0000:0000:0000:0000:0001]/",
    ],
    "not a valid IP": [
        "http://127.0.0.01/", "http://256.1.1.1/", "http://[::1%25lo]/", "http://[::1%lo]/",
        "http://[fe80::1%25eth0]/", "http://[127.0.0.1]/", "http://[v1.x]/",
    ],
    "unspecified": ["http://0.0.0.0:8000/", "http://[::]/"],
    "cannot be read": [
        "http://[::1]example.com/", "http://[::1/", "http://::1/", "http://example.com:0/",
        "http://example.com:/", "http://example.com:080/", "http://example.com:+80/",
        "http://example.com:８０/", "http://example.com:80:80/",
    ],
    "not a name": [
        "http://localhost./", "http://127.0.0.1\\.example.com/", "http://example.com%00.evil.net/",
        "http://%31%32%37.0.0.1/", "http://127.0.0.1%09/", "http://exa mple.com/", "http://example.com./",
        "http://example..com/", "http://.example.com/", "http://-example.com/", "http://exam,ple.com/",
        f"http://{'a' * 64}.com/", f"http://{'a.' * 130}com/", "http://", "http:///etc/passwd", "http://?x",
    ],
    "private": [
        "http://10.0.0.1/", "http://172.16.0.1/", "http://172.31.255.255/", "http://192.168.1.1/",
        "http://[fc00::1]/", "http://[fd12:3456::1]/", "http://[64:ff9b::10.0.0.1]/",
    ],
    "carrier": ["http://100.64.0.1/"],
    "documentation": [
        "http://192.0.2.1/", "http://198.51.100.1/", "http://203.0.113.1/", "http://[2001:db8::1]/",
        "http://[3fff::1]/",
    ],
    "benchmark": ["http://198.18.0.1/"],
    "multicast": ["http://224.0.0.1/", "http://[ff02::1]/"],
    "site-local": ["http://[fec0::1]/"],
    "http://": [
        "file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL", "ftp://example.com/",
        "dict://127.0.0.1:11211/stat", "data:text/html,hello", "javascript:alert(1)",
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/info", "unix:///var/run/docker.sock", "ws://example.com/",
        "view-source:http://example.com/", "jar:http://example.com!/x", "//example.com/",
        "http:/example.com/", "http:example.com", "http:\\\\example.com\\", "example.com",
        " http://example.com/", "",
    ],
    "control": [
        "http://exam\tple.com/", "http://example.com/\r\nX: y", "http://example.com/\x00",
        "http://example.com/\x85", "http://\ud800.com/",
    ],
    "no such port": ["http://example.com:65536/"],
    "is not a port of web pages": [
        "http://example.com:22/", "http://example.com:25/", "http://example.com:6379/",
        "http://example.com:5432/", "http://example.com:9200/", "http://93.184.215.14:11211/",
    ],
    "longer": [f"http://example.com/{'a' * 8000}"],
}  # fmt: skip

NORMAL = [
    ("http://example.com", "http://example.com/"),
    ("HTTPS://Example.COM:443/A?b=C#d", "https://example.com/A?b=C"),
    ("http://example.com:8080?x", "http://example.com:8080/?x"),
    ("https://example.com/a/../b/./c/..", "https://example.com/b/"),
    ("https://example.com/public/%2e%2E/private", "https://example.com/private"),
    ("https://example.com/../../etc/passwd", "https://example.com/etc/passwd"),
    ("https://example.com/%7Eann/%2fx", "https://example.com/~ann/%2Fx"),
    ("https://example.com/a b/ü?q=ä\\", "https://example.com/a%20b/%C3%BC?q=%C3%A4%5C"),
    ("https://example.com/100%", "https://example.com/100%"),
    ("https://bücher.example/", "https://xn--bcher-kva.example/"),
    ("https://r3---sn-4g5e6nsz.googlevideo.com/", "https://r3---sn-4g5e6nsz.googlevideo.com/"),
    ("https://my_host.example.com/", "https://my_host.example.com/"),
    ("http://93.184.215.14/", "http://93.184.215.14/"),
    ("http://[2606:2800:021F:CB07::8B2C]:8443/", "http://[2606:2800:21f:cb07::8b2c]:8443/"),
    ("http://[64:ff9b::93.184.215.14]/", "http://[64:ff9b::5db8:d70e]/"),
]


@pytest.mark.parametrize(
    ("url", "word"),
    [(url, word) for word, urls in HOSTILE.items() for url in urls],
    ids=lambda value: ascii(value)[:60],
)
def test_a_hostile_address_is_refused_before_anything_is_looked_up(url, word):
    with pytest.raises(ToolDenied, match=word) as refused:
        Egress().check(url)
    assert refused.value.suggestion


@pytest.mark.parametrize(("url", "written"), NORMAL)
def test_an_address_is_written_in_one_way(url, written):
    assert str(Egress().check(url)) == written
    assert str(parse_url(written)) == written


@given(
    st.lists(
        st.sampled_from(
            [*"aZ1.:@/\\?#[]%_- \t\u3002ü０", "http", "https", "://", "127.0.0.1", "::1", "%2e", "..", "80"]
        )
        | st.characters(),
        max_size=12,
    )
)
def test_whatever_is_accepted_is_read_alike_by_other_parsers(pieces):
    try:
        url = parse_url("http://example.com" + "".join(pieces))
    except ToolDenied:
        return
    written = str(url)
    assert written.isascii()
    assert written.isprintable()
    assert parse_url(written) == url
    for host, port in [
        (urlsplit(written).hostname, urlsplit(written).port),
        (httpx2.URL(written).raw_host.decode(), httpx2.URL(written).port),
    ]:
        assert (host, port or 80) == (url.host, url.port)


@given(
    st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
    | st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address)
)
def test_no_address_is_public_that_python_calls_private(address):
    if not denial_reason(address):
        assert address.is_global
        assert not address.is_multicast


def test_every_block_that_python_knows_as_not_public_is_refused_at_both_ends():
    for constants in (ipaddress._IPv4Constants, ipaddress._IPv6Constants):
        for network in constants._private_networks:
            assert denial_reason(network[0]), network
            assert denial_reason(network[-1]), network


class Connection:
    """A connection that has no more than an address of its own."""

    def __init__(self, ours):
        self.ours, self.closed = ours, False

    def extra(self, _):
        return (self.ours, 40000)

    async def aclose(self):
        self.closed = True


class Network:
    """Answers each look-up with the next of *answers*, then with the last for ever. ``guard`` goes through it."""

    def __init__(self, *answers, allowed=(), unreachable=(), ours="10.1.2.3"):
        self.answers, self.unreachable = answers, unreachable
        self.asked, self.reached = [], []
        self.connection = Connection(ours)
        self.guard = Egress(allowed, resolve=self.resolve, connect=self.connect)

    async def resolve(self, host, port):
        self.asked.append(host)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def connect(self, address, port):
        self.reached.append((address, port))
        if address in self.unreachable:
            raise OSError("unreachable")
        return self.connection


async def hang(_host, _port):
    await anyio.sleep_forever()


BAD_ANSWERS = [
    ["127.0.0.1"], ["169.254.169.254"], ["10.0.0.1"], ["::1"], ["fe80::1%eth0"], ["2606:2800::1%1"], ["fd00::1"],
    ["::ffff:10.0.0.1"], [PUBLIC, "127.0.0.1"], [PUBLIC6, PUBLIC, "::1"], ["168.63.129.16"], ["0.0.0.0"],
    ["nonsense"], [PUBLIC, ""],
]  # fmt: skip


@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=str)
async def test_a_name_with_one_bad_address_is_refused_and_nothing_is_connected_to(answer):
    network = Network(answer)
    with pytest.raises(ToolDenied) as refused:
        await network.guard.open_connection("example.com", 443)
    assert not network.reached
    assert not any(address in str(refused.value) for address in answer if address), (
        "what is inside stays inside"
    )


async def test_a_name_that_answers_differently_the_second_time_is_connected_to_as_checked():
    network = Network([PUBLIC], ["127.0.0.1"])
    await network.guard.open_connection("rebinding.example", 80)
    assert (network.asked, network.reached) == (["rebinding.example"], [(PUBLIC, 80)])
    with pytest.raises(ToolDenied, match="loopback"):
        await network.guard.open_connection("rebinding.example", 80)
    assert len(network.reached) == 1


@pytest.mark.parametrize(
    ("host", "port"),
    [("127.0.0.1", 80), ("127.1", 80), ("[::1]", 443), ("::1", 443), ("localhost", 80), ("example.com", 25),
     ("example.com\0", 80), ("a b", 80), ("", 80), ("[", 80), ("::1%lo", 80), ("EXAMPLE.COM.", 80)],
)  # fmt: skip
async def test_a_bare_host_and_port_are_judged_as_strictly_as_an_address(host, port):
    network = Network([PUBLIC])
    with pytest.raises(ToolDenied):
        await network.guard.addresses(host, port)
    assert not network.asked


async def test_a_public_literal_is_not_looked_up():
    network = Network(OSError())
    assert await network.guard.addresses("93.184.215.14", 80) == [PUBLIC]
    assert await network.guard.addresses(f"[{PUBLIC6}]", 443) == [PUBLIC6]
    assert not network.asked


async def test_the_next_address_is_tried_when_one_cannot_be_reached():
    network = Network([PUBLIC6, PUBLIC], unreachable={PUBLIC6})
    await network.guard.open_connection("example.com", 443)
    assert network.reached == [(PUBLIC6, 443), (PUBLIC, 443)]


async def test_no_more_than_a_few_addresses_are_tried():
    many = [f"93.184.215.{number}" for number in range(1, 100)]
    network = Network(many, unreachable=many)
    with pytest.raises(ToolError, match="cannot be reached"):
        await network.guard.open_connection("example.com", 443)
    assert len(network.reached) == egress.MAX_ADDRESSES


async def test_an_address_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(egress, "CONNECT_S", 0.01)
    with pytest.raises(ToolError, match="cannot be reached"):
        await Egress(resolve=Network([PUBLIC]).resolve, connect=hang).open_connection("example.com", 443)


async def test_the_public_address_of_this_machine_is_refused_for_it_is_behind_the_firewall():
    network = Network([PUBLIC], ours=PUBLIC)
    with pytest.raises(ToolDenied, match="this machine"):
        await network.guard.open_connection("example.com", 443)
    assert network.connection.closed


@pytest.mark.parametrize("failure", [socket.gaierror(-2, "unknown"), UnicodeError("label too long"), []])
async def test_a_name_without_an_address_is_not_found(failure):
    with pytest.raises(ToolNotFound, match=r"no host example\.com"):
        await Network(failure).guard.addresses("example.com", 80)


async def test_a_resolver_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(egress, "RESOLVE_S", 0.01)
    with pytest.raises(ToolTimeout):
        await Egress(resolve=hang).addresses("example.com", 80)


async def test_look_ups_that_hang_are_bounded_and_are_waited_for_by_nobody(monkeypatch):
    leave, asked = threading.Event(), threading.Semaphore(0)

    def hang(*_args, **_kwargs):
        asked.release()
        leave.wait(10)
        return [(0, 0, 0, "", (PUBLIC, 80))]

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(egress, "RESOLVE_S", 0.05)
    guard = Egress(resolve=Resolver(limit=2))
    try:
        for _ in range(2):
            with pytest.raises(ToolTimeout):
                await guard.addresses("slow.example", 80)
            assert asked.acquire(timeout=5)
        with pytest.raises(ToolError, match="Too many"):
            await guard.addresses("slow.example", 80)
    finally:
        leave.set()


async def test_the_systems_resolver_gives_each_address_once_however_often_it_is_asked():
    resolve = Resolver(limit=1)
    for _ in range(3):
        assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]


async def test_an_operator_opens_a_host_on_any_port():
    guard = Network(["10.1.2.3"], allowed=["wiki.corp.example", "localhost"]).guard
    assert await guard.addresses("Wiki.corp.example", 9000) == ["10.1.2.3"]
    assert str(guard.check("http://localhost:3000/x")) == "http://localhost:3000/x"
    with pytest.raises(ToolDenied):
        await guard.addresses("other.corp.example", 80)


@pytest.mark.parametrize(
    "answer", ["169.254.169.254", "100.100.100.200", "fe80::1%1", "224.0.0.1", "::ffff:7f00:1"]
)
async def test_a_host_that_an_operator_opened_still_cannot_lead_to_metadata(answer):
    with pytest.raises(ToolDenied):
        await Network([answer], allowed=["wiki.corp.example"]).guard.addresses("wiki.corp.example", 80)


async def test_an_operator_opens_a_network_for_names_and_addresses_in_it():
    guard = Network(["10.1.2.3"], ["10.2.2.3"], allowed=["10.1.0.0/16", "fd00::/8"]).guard
    assert guard.check("http://10.1.9.9:9000/")
    assert guard.check("http://[fd00::1]:3000/")
    assert await guard.addresses("wiki.example", 80) == ["10.1.2.3"]
    for url in ("http://10.2.0.1/", "http://[64:ff9b::10.1.0.1]/", "http://[::ffff:10.1.0.1]/"):
        with pytest.raises(ToolDenied):
            guard.check(url)
    with pytest.raises(ToolDenied):
        await guard.addresses("wiki.example", 80)


@pytest.mark.parametrize("entry", ["10.1.2.3/8", "http://wiki.example", "*.corp", "", "wiki:80", "300.1.1.1"])
def test_an_entry_that_opens_nothing_is_told(entry):
    with pytest.raises(ValueError, match="neither a host nor a network"):
        parse_allowed([entry])
