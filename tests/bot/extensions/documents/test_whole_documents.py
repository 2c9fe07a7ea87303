"""Every word of a document is read, wherever its format keeps it, or the reader says that some is missing."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import zipfile

import anyio.to_thread
import pytest
from openpyxl import Workbook
from openpyxl.chart import BarChart
from openpyxl.comments import Comment
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Link
from pypdf.annotations import Text as Note
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, NumberObject, TextStringObject

from bot.extensions.documents.problems import WHY, left_out
from bot.extensions.documents.reader import Reader
from tests.bot.extensions.documents import hostile_files as made
from tests.bot.extensions.documents import office_files as office
from threads.store.attachments import Extracted


async def read(data, ending=""):
    return await Reader(anyio.to_thread.run_sync).text_of(data, "", f"a{ending}")


async def body(data, ending=""):
    return (await read(data, ending)).text


DOCUMENTS = {
    "Word": (office.WORD, "", office.READ_WORD),
    "PowerPoint": (office.SLIDES, "", office.READ_SLIDES),
    "OpenDocument": (office.OPEN_TEXT, "", office.READ_OPEN_TEXT),
    "a book, in the order of its pages": (office.BOOK, "", "the beginning\n\nthe end\n\na note\n\n"),
    "an OpenDocument sheet": (office.OPEN_SHEET, "", office.READ_OPEN_SHEET),
    "rich text": (office.RICH_TEXT, "", office.READ_RICH_TEXT),
    "a notebook": (office.NOTEBOOK, ".ipynb", "# Title\nwords\n\n```\nprint(1)\n```\n\n[output]\n1\n\n\n"),
    "a mail": (office.MAIL, ".eml", office.READ_MAIL),
}


@pytest.mark.parametrize(("data", "ending", "words"), DOCUMENTS.values(), ids=DOCUMENTS)
async def test_a_document_is_read_whole_and_in_order(data, ending, words):
    assert (await body(data, ending)).strip() == words.strip()


async def test_a_workbook_shows_formulas_without_a_value_comments_links_and_charts_beside_their_sheets():
    book = Workbook()
    sheet, other = book.active, book.create_sheet("Old")
    sheet.append([1, 2, "=SUM(A1:B1)"])
    sheet["A1"].comment = Comment("from the invoice", "Ann")
    sheet["B1"].hyperlink = "https://a.example/invoice"
    chart = BarChart()
    chart.title = "Costs"
    sheet.add_chart(chart)
    other.append(["kept"])
    other.sheet_state = "hidden"
    first, second = (await body(made.saved(book.save))).split("## Old (hidden)\n")
    assert "1,2,=SUM(A1:B1)" in first
    assert "[comment on A1: from the invoice]" in first
    assert "[link on B1: https://a.example/invoice]" in first
    assert "[chart: Costs]" in first
    assert second.strip() == "kept"


async def test_a_sheet_with_too_many_columns_is_told():
    assert (await read(made.xlsx(A=[list(range(200))]))).problem == ""
    assert (await read(made.xlsx(A=[list(range(201))]))).problem == left_out(["rest"])


async def test_a_sheet_whose_size_is_told_wrong_is_read_whole():
    data, fixed = made.xlsx(A=[[n, n * n] for n in range(20)]), io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(fixed, "w") as target:
        for name in source.namelist():
            part = source.read(name)
            if name.endswith("sheet1.xml"):
                part = part.replace(b'<dimension ref="A1:B20"', b'<dimension ref="A1"')
                assert b'ref="A1"' in part
            target.writestr(name, part)
    assert "19,361" in await body(fixed.getvalue())


async def test_what_people_wrote_onto_a_pdf_is_read():
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(made.pdf("a form"))))
    writer.add_annotation(0, Note(text="sign here", rect=(50, 550, 200, 650)))
    field = DictionaryObject(
        {
            NameObject("/Subtype"): NameObject("/Widget"),
            NameObject("/T"): TextStringObject("name"),
            NameObject("/V"): TextStringObject("Ann Lee"),
            NameObject("/Rect"): ArrayObject(map(NumberObject, (0, 0, 9, 9))),
        }
    )
    writer.pages[0]["/Annots"].append(writer._add_object(field))
    words = await body(made.saved(writer.write))
    assert "a form" in words
    assert "[comment: sign here]" in words
    assert "[field name: Ann Lee]" in words


async def test_where_the_links_of_a_pdf_lead_is_read_but_nothing_that_it_hides():
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(made.pdf("see there"))))
    writer.add_annotation(0, Link(rect=(0, 0, 9, 9), url="https://a.example/there"))
    writer.add_annotation(0, Note(text="HIDDEN", rect=(0, 0, 9, 9)))
    writer.pages[0]["/Annots"][1].get_object()[NameObject("/F")] = NumberObject(2)
    writer.add_attachment("costs.csv", b"1,2")
    found = await read(made.saved(writer.write))
    assert found.text == "[page 1]\nsee there\n[link: https://a.example/there]\n\n[embedded file: costs.csv]"
    assert found.problem == left_out(["embedded"])


async def test_a_list_in_a_form_shows_its_entries_by_their_words():
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(made.pdf("a form"))))
    entries = ArrayObject(ArrayObject(map(TextStringObject, pair)) for pair in (("1", "red"), ("2", "blue")))
    field = {
        "/Subtype": NameObject("/Widget"),
        "/T": TextStringObject("colour"),
        "/V": TextStringObject("2"),
        "/Opt": entries,
    }
    writer.pages[0][NameObject("/Annots")] = ArrayObject(
        [DictionaryObject({NameObject(key): value for key, value in field.items()})]
    )
    assert "[field colour: blue (of red, blue)]" in await body(made.saved(writer.write))


async def test_what_is_broken_on_a_page_of_a_pdf_costs_no_words_beside_it():
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(made.pdf("kept"))))
    writer.pages[0][NameObject("/Annots")] = ArrayObject([NumberObject(7)])
    found = await read(made.saved(writer.write))
    assert found.text == "[page 1]\nkept"
    assert found.problem == left_out(["pages"])


async def test_an_open_document_with_a_password_is_told_so():
    locked = made.packed(
        office.OPEN_TEXT, **{"META-INF__manifest": b"<m:encryption-data/>", "content": b"\0\1"}
    )
    assert (await read(locked)).problem == WHY["password"]


async def test_an_archive_is_listed_and_says_that_it_is_only_a_list():
    found = await read(office.packed({"a/b.txt": "x" * 1234, "c.bin": ""}))
    assert "a/b.txt (1,234 bytes)" in found.text
    assert found.problem == left_out(["listed"])


async def test_an_attachment_that_cannot_be_read_is_named_and_told():
    data = office.MAIL.replace(b"text/csv", b"application/octet-stream").replace(b"a,b", bytes(range(20)))
    found = await read(data, ".eml")
    assert "[attachment: numbers.csv; I have no way to read files of this kind]" in found.text
    assert found.problem == left_out(["attachments"])


async def test_a_mail_without_words_or_with_a_broken_attachment_keeps_the_rest():
    silent = office.MAIL.replace(b"U2No9m5lbiBUYWc=", b"")
    assert "1,2" in (await read(silent, ".eml")).text
    broken = office.MAIL.replace(b"a,b\n1,2", b"PK\x03\x04 cut off")
    found = await read(broken, ".eml")
    assert "Sch\u00f6nen Tag" in found.text
    assert found.problem == left_out(["attachments"])


NESTED = b"""Subject: nested
MIME-Version: 1.0
Content-Type: multipart/signed; boundary=a

--a
Content-Type: multipart/mixed; boundary=b

--b
Content-Type: multipart/alternative; boundary=c

--c
Content-Type: text/plain

your program shows no HTML
--c
Content-Type: text/html

<p>The <b>words</b></p><footer>with a <a href="https://a.example/f">footer</a></footer>
--c--
--b
Content-Type: image/png
Content-Disposition: inline; filename="logo.png"

x
--b
Content-Type: application/zip
Content-Disposition: attachment; filename="all.zip"
Content-Transfer-Encoding: base64

%s
--b
Content-Type: text/plain

after the attachment
--b--
--a
Content-Type: application/pgp-signature; name="signature.asc"

SIGNATURE
--a--
"""


async def test_the_parts_of_a_mail_are_read_in_their_order_and_what_they_lack_is_told():
    archive = base64.encodebytes(office.packed({"a.txt": "12"}))
    found = await read(NESTED % archive, ".eml")
    words = found.text.split("nested\n", 1)[1].split("\n\n")
    assert [part.strip() for part in words if part.strip()] == [
        "The **words**",
        "with a [footer](https://a.example/f)",
        "[picture: logo.png]",
        f"[attachment: all.zip; {left_out(['listed'])[:-1]}]\nAn archive of 1 files:\na.txt (2 bytes)",
        "after the attachment",
    ]
    assert found.problem == left_out(["pictures", "attachments"])


async def test_a_page_that_somebody_sends_is_read_whole():
    page = b"""<html><body><nav>Menu</nav><main>%s</main><form><input value="Ann"><input type="checkbox" checked>
    <select><option>red<option selected>blue</select><input type="password" value="SECRET"></form>
    <aside>beside</aside><p style="display:none">HIDDEN</p></body></html>""" % (b"main words " * 30)
    words = await body(page, ".html")
    for shown in ("Menu", "main words", "Ann", "\u2611", "blue", "beside"):
        assert shown in words
    for unseen in ("SECRET", "HIDDEN", "red"):
        assert unseen not in words


async def test_a_notebook_of_the_third_version_is_read_and_its_pictures_are_told():
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Title"},
        {"cell_type": "code", "input": "plot()", "outputs": [{"png": "AAAA"}]},
    ]
    found = await read(json.dumps({"worksheets": [{"cells": cells}]}).encode(), ".ipynb")
    assert found.text.split() == ["##", "Title", "```", "plot()", "```", "[output]", "[picture]"]
    assert found.problem == left_out(["pictures"])


class Russian(zipfile.ZipInfo):
    """An entry as programs in Russia write it."""

    def _encodeFilenameFlags(self):
        return self.filename.encode("cp866"), self.flag_bits & ~0x800


async def test_names_in_an_archive_are_read_in_the_encoding_of_their_country():
    names, held = ("счёт за май.pdf", "договор аренды.docx"), io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name in names:
            archive.writestr(Russian(name), "x")
    words = await body(held.getvalue())
    assert all(name in words for name in names)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
async def test_a_packed_file_is_unpacked_and_read(pack):
    assert await read(pack("größer".encode()), ".gz") == Extracted("größer")
    assert "a,b" in await body(pack(made.xlsx(A=[["a", "b"]])), ".xlsx.gz")


async def test_a_packed_file_of_too_much_or_cut_off_is_told():
    assert (await read(gzip.compress(bytes(150_000_000)), ".gz")).problem == WHY["too_large"]
    assert (await read(gzip.compress(bytes(range(256)) * 99)[:200], ".gz")).problem == WHY["damaged"]
