"""Every word of a document is read, wherever its format keeps it, or the reader says that some is missing."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile

import anyio.to_thread
import pytest
from openpyxl import Workbook
from openpyxl.comments import Comment
from pypdf import PdfReader, PdfWriter
from pypdf.annotations import Text as Note
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, NumberObject, TextStringObject

from bot.documents.problems import WHY, left_out
from bot.documents.reader import Documents, Extracted
from tests.bot.documents import hostile_files as made
from tests.bot.documents import office_files as office

pytestmark = pytest.mark.anyio


async def read(data, ending=""):
    return await Documents(anyio.to_thread.run_sync).text_of(data, "", f"a{ending}")


async def body(data, ending=""):
    return (await read(data, ending)).text


DOCUMENTS = {
    "Word": (office.WORD, "", office.READ_WORD),
    "PowerPoint": (office.SLIDES, "", office.READ_SLIDES),
    "OpenDocument": (office.OPEN_TEXT, "", office.READ_OPEN_TEXT),
    "a book, in the order of its pages": (office.BOOK, "", "the beginning\n\nthe end\n\n"),
    "rich text": (office.RICH_TEXT, "", "Grüße bold, € 5\nnext"),
    "a notebook": (office.NOTEBOOK, ".ipynb", "# Title\nwords\n\n```\nprint(1)\n```\n\n[output]\n1\n\n\n"),
    "a mail": (office.MAIL, ".eml", office.READ_MAIL),
}


@pytest.mark.parametrize(("data", "ending", "words"), DOCUMENTS.values(), ids=DOCUMENTS)
async def test_a_document_is_read_whole_and_in_order(data, ending, words):
    assert (await body(data, ending)).strip() == words.strip()


async def test_a_formula_without_a_value_is_shown_and_so_are_comments():
    book = Workbook()
    sheet = book.active
    sheet.append([1, 2, "=SUM(A1:B1)"])
    sheet["A1"].comment = Comment("from the invoice", "Ann")
    held = io.BytesIO()
    book.save(held)
    words = await body(held.getvalue())
    assert "1,2,=SUM(A1:B1)" in words
    assert "[comment on A1: from the invoice]" in words


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


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
async def test_a_packed_file_is_unpacked_and_read(pack):
    assert await read(pack("größer".encode()), ".gz") == Extracted("größer")
    assert "a,b" in await body(pack(made.xlsx(A=[["a", "b"]])), ".xlsx.gz")


async def test_a_packed_file_of_too_much_or_cut_off_is_told():
    assert (await read(gzip.compress(bytes(150_000_000)), ".gz")).problem == WHY["too_large"]
    assert (await read(gzip.compress(bytes(range(256)) * 99)[:200], ".gz")).problem == WHY["damaged"]
