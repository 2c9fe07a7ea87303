"""Files from outside become text or a picture, or a word on why not; none of them costs more than its own child.

More bombs are in `tests.hostile.test_uploads` and `tests.hostile.test_web`, which send them to a whole bot.
"""

import ctypes
import io
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from PIL import Image

from bot.extensions.documents.extract.encoding import decoded
from bot.extensions.documents.problems import WHY, left_out
from bot.extensions.documents.reader import Reader
from tests.bot.extensions.documents import hostile_files as made
from tests.patience import WITHIN_S
from threads.background import background_tasks
from threads.store.attachments import Extracted, ModelImage
from threads.store.image_header import MAX_BYTES, read_header

OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 504


@pytest.fixture
def documents():
    return Reader(anyio.to_thread.run_sync)


def children(of=None):
    """Return a process's children that are not yet buried; ours if none is given."""
    found = []
    for task in Path(f"/proc/{of or os.getpid()}/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            found += (task / "children").read_text().split()
    return found


@pytest.fixture(autouse=True)
def no_child_is_left_over():
    if sys.platform != "linux":
        yield
        return
    before = set(children())
    yield
    assert not set(children()) - before, "a child lives on"


PAGE = b"""<!doctype html><html><head><title> A  title </title><style>p{}</style></head><body>
<nav><a href="/menu">Menu</a></nav><h1>Head</h1><p>Some <b>bold</b> words and a <a href="https://example.org/x">link</a>.</p>
<script>alert(1)</script><p style="display: none">unseen 1</p><p hidden>unseen 2</p><p aria-hidden="true">unseen 3</p>
<p style="font-size:0">unseen 4</p><!-- unseen 5 --><template>unseen 6</template><div style="opacity:0">unseen 7</div>
<ul><li>one</li><li>two</li></ul><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>
<img src="data:image/png;base64,AAAA" alt="a cat"><a href="javascript:alert(2)">press</a><pre>code  here</pre>
<form>unseen 8</form><footer>unseen 9</footer></body></html>"""


async def test_a_page_becomes_markdown_with_its_links_and_without_what_nobody_sees(documents):
    page = await documents.text_of(PAGE, "text/html; charset=utf-8", site=True)
    assert page.title == "A title"
    assert page.problem == ""
    for shown in (
        "# Head",
        "**bold**",
        "[link](https://example.org/x)",
        "- one",
        "| 1 | 2 |",
        "a cat",
        "code  here",
        "press",
    ):
        assert shown in page.text
    for unseen in ("unseen", "alert", "Menu", "base64", "p{}"):
        assert unseen not in page.text


TEXTS = {
    "UTF-8": ("größer".encode(), "", "größer", True),
    "UTF-8 with a mark": (b"\xef\xbb\xbfgr\xc3\xb6\xc3\x9fer", "", "größer", False),
    "UTF-16": ("größer".encode("utf-16"), "", "größer", False),
    "UTF-32": ("größer".encode("utf-32"), "", "größer", False),
    "Latin-1": ("größer".encode("latin-1"), "", "größer", False),
    "declared": ("больше".encode("koi8-r"), "text/plain; charset=koi8-r", "больше", False),
    "wrongly declared": ("größer".encode(), "text/plain; charset=us-ascii", "größer", True),
    "declared as nonsense": (b"abc", "text/plain; charset=unicode_escape", "abc", True),
    "cut inside a character": ("größe€".encode()[:-1], "", "größe", True),
    "terminal colours": (b"\x1b[31mred\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07", "", "red link", False),
    "control characters": (b"a\x08b\x7fc\r\nd\re", "", "abc\nd\ne", False),
    "unseen characters": ("a\u202eb\u200bc\U000e0041d\ufeffe".encode(), "", "abcde", False),
    "emoji and joiners": ("👨‍👩‍👧 क्‍ष".encode(), "", "👨‍👩‍👧 क्‍ष", True),
    "XML that laughs": (made.LAUGHS + b"<x>&a11;</x>", "text/xml", "&a11;</x>", True),
    "XML that asks for a file": (made.OUTER + b"<x>&e;</x>", "application/xml", "<x>&e;</x>", True),
    "JSON, 100,000 deep": (b"[" * 100_000, "application/json", "[[[", True),
    "CSV with formulas": (b"a,b\n=cmd|' /C calc'!A0,2\n", "text/csv", "=cmd|' /C calc'!A0,2", True),
    "source code": (b"print('<html>')\n", "text/x-python", "print('<html>')", True),
    "SVG": (b"<svg onload='x()'/>", "image/svg+xml", "<svg onload='x()'/>", True),
    "a page called text": (b"<!doctype html><p>hi", "text/plain", "<!doctype html><p>hi", True),
    "a page called PDF": (b"<html><body><p>hi %PDF-1.7", "application/pdf", "hi %PDF-1.7", False),
    "a PDF called page": (made.pdf("it is me"), "text/html", "it is me", False),
    "a PDF after junk": (b"junk" * 9 + made.pdf("it is me"), "", "it is me", False),
    "a PDF that is an archive too": (made.pdf("it is me") + made.docx("not me"), "", "it is me", False),
    "Word": (made.docx("one", "two", table=[("a", "b")], heading="Why"), "", "## Why\n\none\n\ntwo\n\n| a | b |", False),
    "Excel": (made.xlsx(Costs=[["a", "b"], [1, 2.5], [None, None], ["x, y", True]]), "", '## Costs\na,b\n1,2.5\n"x, y",True', False),
}  # fmt: skip

SENTENCES = {
    "cp1251": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "koi8-r": "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "shift_jis": "名前,年齢,住所\n佐藤太郎,30,東京\n三木英子,25,大阪\n",
    "euc_jp": "名前,年齢,住所\n佐藤太郎,30,東京\n三木英子,25,大阪\n",
    "iso2022_jp": "名前,年齢,住所\n佐藤太郎,30,東京\n三木英子,25,大阪\n",
    "gb18030": "今天天气很好，我们去公园散步吧。价格是多少？",
    "big5": "今天天氣很好，我們去公園散步吧。價格是多少？",
    "euc_kr": "오늘 날씨가 아주 좋습니다. 가격은 얼마입니까?",
    "cp1252": "Zürich und Köln sind schöne Städte – „grüße“",
    "cp1250": "Zażółć gęślą jaźń, proszę bardzo, dziękuję",
    "cp1253": "Καλημέρα κόσμε, τι κάνεις σήμερα;",
    "cp1255": "שלום עולם מה שלומך היום",
    "cp1254": "Bugün hava çok güzel, teşekkürler İstanbul",
    "utf-16": "größer",
    "utf-16-le": "größer als zwei\n",
    "utf-16-be": "今天天气很好，一\n二 three\n",
    "utf-32-le": "größer",
    "utf-32-be": "今天天气很好",
    "iso2022_kr": "오늘 날씨가 아주 좋습니다.",
}


@pytest.mark.parametrize("encoding", SENTENCES)
def test_a_text_without_a_label_is_read_in_the_encoding_that_it_is_in(encoding):
    text = SENTENCES[encoding]
    assert decoded(text.encode(encoding), "").text == text


ONE_BAD_BYTE = {
    "UTF-8": (("Zürich " * 200).encode() + b"\xff!", ""),
    "UTF-8 in ASCII but for it": (b"plain " * 200 + "Zürich".encode() + b" \xff!", ""),
    "declared": (("Съешь " * 200).encode("euc_jp") + b"\xff!", "euc-jp"),
}


@pytest.mark.parametrize("which", ONE_BAD_BYTE)
def test_one_bad_byte_harms_one_letter_and_is_told(which):
    data, label = ONE_BAD_BYTE[which]
    found = decoded(data, label)
    assert found.partly
    assert found.text.endswith("\ufffd!")
    assert found.text.count("\ufffd") == 1
    assert "Zürich" in found.text or "Съешь" in found.text


def test_a_label_means_what_browsers_take_it_for():
    quotes = "“à”".encode("cp1252")
    for label in ("iso-8859-1", "latin1", "us-ascii", "ISO-8859-1"):
        assert decoded(quotes, label).text == "“à”"
    page = b'<html><head><meta charset="iso-8859-1"></head><body>' + quotes
    assert "“à”" in decoded(page, "", markup=True).text


@pytest.mark.parametrize("which", TEXTS)
async def test_a_text_is_read_by_what_it_is(documents, which):
    data, media_type, expected, as_is = TEXTS[which]
    name = "a.txt" if which == "a page called text" else ""
    found = await documents.text_of(data, media_type, name)
    assert expected in found.text
    assert found.as_is is as_is
    assert found.problem == ""
    if as_is:
        assert data.startswith(found.text.encode())


DEEP = b"<div>" * 30_000 + b"deep" + b"</div>" * 30_000

BAD = {
    "nothing": (lambda: b"", "empty"),
    "only blanks": (lambda: b" \n\t" * 99, "empty"),
    "a page without words": (lambda: b"<html><body><script>x</script></body></html>", "empty"),
    "bytes": (lambda: bytes(range(256)) * 20, "unknown"),
    "zeros": (lambda: b"\0" * 100_000, "unknown"),
    "an archive": (lambda: made.packed(made.docx("x"), a=b"x").replace(b"word/document.xml", b"word/docxment.xml"), None),
    "an archive cut off": (lambda: made.docx("x" * 5000)[:3000], "damaged"),
    "an old Word document": (lambda: OLE, "other_program"),
    "a locked Word document": (lambda: OLE + "EncryptedPackage".encode("utf-16-le"), "password"),
    "a locked archive": (lambda: made.locked_archive(made.docx("x")), "password"),
    "a scanned PDF": (lambda: made.pdf("", ""), "scanned"),
    "a PDF cut off": (lambda: made.pdf("x")[:200], "damaged"),
    "a PDF in name only": (lambda: b"%PDF-1.7\n" + b"x" * 5000, "damaged"),
    "a PDF of many pages": (lambda: made.pdf_of_pages(20_000), None),
    "a PDF that unpacks to 500 MB": (lambda: made.pdf_of_streams(2), None),
    "Word of 500 MB": (lambda: made.packed(made.docx("x"), word__document=made.word_xml(b"x" * 500_000_000)), "too_large"),
    "Word, 100,000 deep": (
        lambda: made.packed(made.docx("x"), word__document=made.word_xml(b"<w:p>" * 100_000)),
        "damaged",
    ),
    "Excel that laughs": (
        lambda: made.packed(made.xlsx(A=[[1]]), xl__worksheets__sheet1=made.LAUGHS + made.SHEET % b"&a11;"),
        None,
    ),
    "Excel of a million columns": (
        lambda: made.packed(
            made.xlsx(A=[[1]]),
            xl__worksheets__sheet1=made.SHEET
            % b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (n, n) for n in range(1, 50_000)),
        ),
        None,
    ),
    "Excel of a million rows": (
        lambda: made.packed(
            made.xlsx(A=[[1]]),
            xl__worksheets__sheet1=made.SHEET % b'<row r="1048576"><c r="A1048576"><v>1</v></c></row>',
        ),
        None,
    ),
    "rich text, 300,000 deep": (lambda: b"{\\rtf1 " + b"{" * 300_000 + b"deep", None),
    "rich text of groups that stay open": (lambda: b"{\\rtf1 " + b"{\\footnote x" * 50_000, None),
    "rich text of 1,000,000 lines": (lambda: b"{\\rtf1 " + b"\\par x" * 1_000_000, None),
    "a packed file in itself": (lambda: made.packed_deep(2_000), None),
    "a page 30,000 deep": (lambda: b"<html><body>" + DEEP, None),
    "a page of 40,000 open tags": (lambda: b"<html>" + b"<b><i>" * 20_000, None),
    "a page of one long attribute": (lambda: b"<html><p title='" + b"x" * 5_000_000, None),
    "a page of a million entities": (lambda: b"<html>" + b"&amp" * 1_000_000, None),
    "a page of comments that do not end": (lambda: b"<html>" + b"<!--" * 500_000, None),
    "a page of marks that do not end": (lambda: b"<html>" + b"<![" * 200_000 + b"<?" * 200_000, None),
}  # fmt: skip


@pytest.mark.parametrize("which", BAD)
async def test_what_cannot_be_read_is_told_and_costs_little(documents, which):
    """A file that is only odd, not bad (None), may give text, but must end in time and within what is given."""
    make, problem = BAD[which]
    data = make()
    began = time.monotonic()
    found = await documents.text_of(data, "")
    assert time.monotonic() - began < WITHIN_S
    assert found.text or found.problem
    assert len(found.text) <= 1_000_000
    assert "root:" not in found.text, "no file of the host"
    if problem:
        assert found == Extracted("", "", WHY[problem])


PICTURES = {
    "a photograph": (lambda: made.picture("JPEG", (4000, 3000)), "image/jpeg", (1568, 1176)),
    "a drawing": (lambda: made.png((3136, 100)), "image/png", (1568, 50)),
    "one to see through": (lambda: made.png((2000, 2000), "RGBA"), "image/png", (1568, 1568)),
    "a palette": (lambda: made.png((2000, 100), "P"), "image/png", (1568, 78)),
    "16 bits of grey": (lambda: made.png((2000, 100), "I;16"), "image/png", (1568, 78)),
    "black and white": (lambda: made.png((2000, 100), "1"), "image/png", (1568, 78)),
    "for print": (lambda: made.picture("JPEG", (2000, 100), "CMYK"), "image/jpeg", (1568, 78)),
    "BMP": (lambda: made.picture("BMP"), "image/png", (40, 30)),
    "TIFF": (lambda: made.picture("TIFF"), "image/png", (40, 30)),
    "WebP": (lambda: made.picture("WEBP", (2000, 100)), "image/png", (1568, 78)),
    "one that moves": (lambda: made.moving("GIF"), "image/png", (1568, 78)),
    "a WebP that moves": (lambda: made.moving("WEBP"), "image/png", (1568, 78)),
    "a PNG that moves": (lambda: made.moving("PNG"), "image/png", (1568, 78)),
    "a TIFF of two pages": (lambda: made.moving("TIFF"), "image/png", (1568, 78)),
    "AVIF": (lambda: made.picture("AVIF", (2000, 100)), "image/png", (1568, 78)),
    "a small one for print": (lambda: made.picture("JPEG", (50, 20), "CMYK"), "image/jpeg", (50, 20)),
    "a small one, held sideways": (lambda: made.turned_jpeg(20), "image/jpeg", (50, 150)),
    "measurements": (lambda: made.picture("TIFF", (50, 20), "F"), "image/png", (50, 20)),
    "a photograph held sideways": (lambda: made.turned_jpeg(), "image/jpeg", (523, 1568)),
    "49 megapixels": (lambda: made.png((7000, 7000), "RGBA"), "image/png", (1568, 1568)),
    "a short side of nothing": (lambda: made.png((20_000, 1)), "image/png", (1568, 1)),
}  # fmt: skip


SEVERAL = ("one that moves", "a WebP that moves", "a PNG that moves", "a TIFF of two pages")


@pytest.mark.parametrize("which", PICTURES)
async def test_a_picture_becomes_small_upright_and_bare(documents, which):
    make, media_type, size = PICTURES[which]
    shown = await documents.picture_of(make())
    assert (shown.problem, shown.media_type) == ("", media_type)
    assert shown.missing == (left_out(["frames"]) if which in SEVERAL else "")
    seen = read_header(shown.data)
    assert (seen.media_type, seen.width, seen.height) == (media_type, *size)
    assert len(shown.data) <= MAX_BYTES
    with Image.open(io.BytesIO(shown.data)) as opened:
        assert not opened.getexif()
        assert getattr(opened, "n_frames", 1) == 1
        if which in SEVERAL:
            assert opened.convert("RGB").getpixel((5, 5))[0] > 200, "its first frame"
        if which.endswith("held sideways"):
            assert opened.getpixel((opened.width // 2, opened.height // 10))[0] > 200, (
                "red was left, and is up"
            )


BAD_PICTURES = {
    "a PNG of 2,147,483,647 a side": (lambda: made.png_of(2**31 - 1, 2**31 - 1), "pixels"),
    "a JPEG cut off": (lambda: made.picture("JPEG", (3000, 3000))[:5000], "damaged"),
    "a small JPEG cut off": (lambda: made.picture("JPEG", (90, 90))[:-20], "damaged"),
    "a PNG of no size": (lambda: made.png_of(0, 0), "unseen"),
    "a HEIC": (lambda: b"\0\0\0\x18ftypheic" + b"\0" * 99, "unseen"),
    "an icon": (lambda: made.picture("ICO"), "unseen"),
    "words": (lambda: b"no picture", "unseen"),
    "nothing": (lambda: b"", "unseen"),
}


@pytest.mark.parametrize("which", BAD_PICTURES)
async def test_a_picture_that_cannot_be_shown_is_told(documents, which):
    make, problem = BAD_PICTURES[which]
    data = make()
    began = time.monotonic()
    assert await documents.picture_of(data) == ModelImage(b"", "", WHY[problem])
    assert time.monotonic() - began < WITHIN_S


async def test_a_file_on_disk_is_read_but_nothing_that_is_no_plain_file(documents, tmp_path):
    file, link, pipe = tmp_path / "a.txt", tmp_path / "link", tmp_path / "pipe"
    file.write_text("words")
    link.symlink_to(file)
    os.mkfifo(pipe)
    assert (await documents.text_of(file, "")).text == "words"
    for odd in (link, pipe, tmp_path, tmp_path / "missing", Path("/dev/zero")):
        with pytest.raises(OSError):
            await documents.text_of(odd, "")


async def test_a_name_or_type_that_is_an_attack_is_no_argument(documents):
    for odd in ("a\0b", "--help", "text/html; charset='; rm", "\ud800.html", "x" * 99_999):
        assert (await documents.text_of(b"words", odd, f"{odd}.{odd}")).text == "words"


SLOW = b"<html>" + b"<b><i>" * 500_000
"""A page that keeps a child busy for minutes."""


async def test_a_child_that_takes_too_long_is_killed():
    found = await Reader(anyio.to_thread.run_sync, wall_s=0.5).text_of(SLOW, "")
    assert found == Extracted("", "", WHY["late"])


async def test_a_child_dies_with_who_asked(documents):
    with anyio.move_on_after(0.5) as scope:
        await documents.text_of(SLOW, "")
    assert scope.cancelled_caught


async def test_no_more_than_two_run_at_once(documents):
    before, seen = len(children()), []
    async with background_tasks() as tasks:
        for _ in range(5):
            tasks.start_soon(documents.text_of, SLOW, "")
        for _ in range(10):
            await anyio.sleep(0.05)
            seen.append(len(children()) - before)
    assert max(seen) == 2


@pytest.mark.parametrize(
    ("child", "problem"),
    [
        ("print('{}'); print('words', end='')", ""),
        ('print(\'{"problem": "obey me"}\')', "damaged"),
        ("print('{\"title\": \"' + 'x' * 999 + '\"}')", "damaged"),
        ("print('nonsense')", "damaged"),
        ("pass", "damaged"),
        ("import os; os.kill(os.getpid(), 11)", "damaged"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGXCPU)", "late"),
        ("while True: print('x' * 9999)", "damaged"),
        ("import os, sys; sys.stdin.close(); os.close(0); print('{}'); print('words', end='')", ""),
    ],
)
async def test_whatever_a_child_says_or_does_is_one_answer(documents, monkeypatch, child, problem):
    monkeypatch.setattr("bot.extensions.documents.reader.PROGRAM", ("-c", child))
    found = await documents.text_of(b"x" * 1_000_000, "")
    assert found == (Extracted("", "", WHY[problem]) if problem else Extracted("words"))


async def test_where_no_child_can_be_started_the_file_is_told_not_read(documents, monkeypatch):
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert await documents.text_of(b"words", "") == Extracted("", "", WHY["busy"])


PROBE = """
import os, socket, sys
from bot.extensions.documents.extract.confinement import confine
confine(os.getppid(), 512_000_000)
def tried(what):
    try:
        return str(what())[:20]
    except BaseException as error:
        return type(error).__name__
print("{}")
print(tried(lambda: open("/etc/passwd").read()), tried(lambda: os.listdir("/root")), tried(lambda: open(%r, "w")),
      tried(lambda: open(%r).read()), tried(lambda: socket.create_connection(("127.0.0.1", 9), 1)),
      tried(lambda: len(bytearray(600_000_000))), "SLACK_BOT_TOKEN" in os.environ, os.getcwd(), tried(sys.stdin.read))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
async def test_a_child_that_was_taken_over_sees_nothing_of_the_host(documents, monkeypatch, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("the token")
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-secret")
    monkeypatch.setattr(
        "bot.extensions.documents.reader.PROGRAM", ("-c", PROBE % (str(tmp_path / "new"), str(secret)))
    )
    said = (await documents.text_of(b"words", "")).text.split()
    if landlock_is_here():
        assert said[:5] == ["PermissionError"] * 5
    assert said[5:] == ["MemoryError", "False", "/", "words"]


def landlock_is_here() -> bool:
    return ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1) >= 4


PARENT = """
import anyio, anyio.to_thread
from bot.extensions.documents.reader import Reader
anyio.run(Reader(anyio.to_thread.run_sync).text_of, b"<html>" + b"<b><i>" * 500_000, "")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere its own alarm ends it")
async def test_a_child_dies_with_its_parent_even_by_kill_9():
    async with await anyio.open_process([sys.executable, "-c", PARENT]) as parent:
        with anyio.fail_after(WITHIN_S):
            while not (found := children(parent.pid)):
                await anyio.sleep(0.02)
            await anyio.sleep(0.3)
            parent.kill()
            while (
                Path(f"/proc/{found[0]}").exists() and "Z" not in Path(f"/proc/{found[0]}/stat").read_text()
            ):
                await anyio.sleep(0.02)
