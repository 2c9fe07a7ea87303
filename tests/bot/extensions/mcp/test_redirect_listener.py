import anyio
import httpx2

from bot.extensions.mcp.redirect_listener import listen


async def test_an_address_is_passed_on_and_answered(free_tcp_port):
    taken = []

    async def take(address):
        taken.append(address)
        return "state=good" in address

    base = f"http://127.0.0.1:{free_tcp_port}/callback"
    async with listen(free_tcp_port, take), httpx2.AsyncClient() as browser:
        good = await browser.get(f"{base}?code=c&state=good")
        bad = await browser.get(f"{base}?code=c&state=bad")
        posted = await browser.post(f"{base}?code=c&state=good")
        async with await anyio.connect_tcp("127.0.0.1", free_tcp_port) as stream:
            await stream.send(b"\x00\xff\r\n\r\n")
            assert (await stream.receive()).startswith(b"HTTP/1.1 404")
    assert [answer.status_code for answer in (good, bad, posted)] == [200, 404, 404]
    assert taken == [f"{base}?code=c&state=good", f"{base}?code=c&state=bad"]
    assert good.headers["referrer-policy"] == "no-referrer"
    assert "state" not in good.text


async def test_a_port_that_is_taken_is_left_alone(free_tcp_port, caplog):
    caplog.set_level("INFO")
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=free_tcp_port),
        listen(free_tcp_port, None),
    ):
        assert "mcp.not_listening" in caplog.text
