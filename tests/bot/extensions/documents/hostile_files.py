"""Files that somebody might send, harmless and hostile, as bytes."""

import gzip
import io
import struct
import zipfile
import zlib
from collections.abc import Callable

from docx import Document
from openpyxl import Workbook
from PIL import Image
from pypdf import PdfReader, PdfWriter


def pdf(*pages: str, more: bytes = b"") -> bytes:
    """Return a PDF with one line of text a page."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    kids = []
    for page in pages:
        lines = page.encode("latin-1").split(b"\n")
        shown = b"T* ".join(
            b"(" + line.replace(b"(", b"\\(").replace(b")", b"\\)") + b") Tj " for line in lines
        )
        stream = b"BT /F1 12 Tf 14 TL 72 720 Td " + shown + b"ET" if page else b""
        objects.append(b"<< /Length %d >> stream\n%s\nendstream" % (len(stream), stream))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(kids))
    return numbered(objects, more)


def numbered(objects: list[bytes], more: bytes = b"") -> bytes:
    """Return a PDF of these objects, the first one its root."""
    out, places = b"%PDF-1.7\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n"
    return out + trailer % (len(objects) + 1, more, start)


def locked_pdf() -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("secret"))))
    writer.encrypt("a password", algorithm="RC4-128")
    return saved(writer.write)


def pdf_of_streams(depth: int) -> bytes:
    """Return a PDF whose page is *depth* times compressed, and 500 MB long in the end."""
    data = zlib.compress(b"0" * 50_000_000, 9)
    packed = zlib.compress(data * 10, 9) if depth > 1 else data
    filters = b" ".join([b"/FlateDecode"] * depth)
    stream = b"<< /Filter [%s] /Length %d >> stream\n%s\nendstream" % (filters, len(packed), packed)
    return numbered(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Count 1 /Kids [4 0 R] >>",
            stream,
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 3 0 R >>",
        ]
    )


def pdf_of_depth(depth: int) -> bytes:
    """Return a PDF whose catalog holds arrays in arrays."""
    deep = b"[" * depth + b"]" * depth
    return numbered(
        [b"<< /Type /Catalog /Pages 2 0 R /X " + deep + b" >>", b"<< /Type /Pages /Count 0 /Kids [] >>"]
    )


def pdf_of_pages(count: int) -> bytes:
    """Return a PDF that shows one page *count* times."""
    return numbered(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Count %d /Kids [%s] >>" % (count, b"4 0 R " * count),
            b"<< /Length 0 >> stream\n\nendstream",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 3 0 R >>",
        ]
    )


def saved(save) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def docx(*paragraphs: str, table=(), heading="") -> bytes:
    document = Document()
    if heading:
        document.add_heading(heading, 2)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    for row in table:
        cells = document.add_table(1, len(row)).rows[0].cells
        for cell, words in zip(cells, row, strict=True):
            cell.text = words
    return saved(document.save)


def xlsx(**sheets) -> bytes:
    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return saved(book.save)


def packed(original: bytes, **parts: bytes) -> bytes:
    """Return an archive with some of its parts replaced or added; ``__`` in a name is a slash."""
    new = {name.replace("__", "/") + ".xml": content for name, content in parts.items()}
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(original)) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for part in old.infolist():
            if part.filename not in new:
                archive.writestr(part.filename, old.read(part))
        for name, content in new.items():
            archive.writestr(name, content)
    return out.getvalue()


def packed_deep(depth: int) -> bytes:
    """Return a text that is packed *depth* times."""
    data = b"words"
    for _ in range(depth):
        data = gzip.compress(data, 1)
    return data


def lying(archive: bytes, size: int) -> bytes:
    """Return an archive whose directory says that each part has *size* bytes, unpacked."""
    return _with_entries(archive, lambda out, at: struct.pack_into("<I", out, at + 24, size))


def locked_archive(archive: bytes) -> bytes:
    """Return an archive whose parts say that they are encrypted."""
    return _with_entries(archive, lambda out, at: struct.pack_into("<H", out, at + 8, 1))


def _with_entries(archive: bytes, change: Callable[[bytearray, int], None]) -> bytes:
    """Return the archive with each entry of its directory changed."""
    out, at = bytearray(archive), 0
    while (at := out.find(b"PK\x01\x02", at)) >= 0:
        change(out, at)
        at += 4
    return bytes(out)


SPACE = b'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
LAUGHS = (
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a0 "ha ha ha ha ha ha ha ha ha ha">'
    + b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 12))
    + b"]>"
)
OUTER = b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'


def word_xml(inside: bytes, before: bytes = b"") -> bytes:
    paragraph = b"<w:p><w:r><w:t>" + inside + b"</w:t></w:r></w:p>"
    return before + b"<w:document " + SPACE + b"><w:body>" + paragraph + b"</w:body></w:document>"


SHEET = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>%s</sheetData></worksheet>'


def png(size=(40, 30), mode="RGB", **how) -> bytes:
    return picture("PNG", size, mode, **how)


def picture(form: str, size=(40, 30), mode="RGB", **how) -> bytes:
    return saved(lambda file: Image.new(mode, size, **how.pop("new", {})).save(file, form, **how))


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of(width: int, height: int, rows: bytes = b"") -> bytes:
    """Return a PNG that claims these sides, whatever it holds."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def png_with_a_note(size: int) -> bytes:
    """Return a picture with a compressed note of *size* bytes before its pixels."""
    data = png((2000, 10))
    note = chunk(b"zTXt", b"note\0\0" + zlib.compress(b"x" * size, 9))
    return data[:33] + note + data[33:]


def gif_of(width: int, height: int) -> bytes:
    return (
        b"GIF89a" + struct.pack("<HHBBB", width, height, 0xF0, 0, 0) + b"\0\0\0\xff\xff\xff"
        b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\0;"
    )


def webp_of(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14
    body = b"VP8L" + struct.pack("<I", 5) + b"\x2f" + struct.pack("<I", bits) + b"\0"
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def moving(form: str) -> bytes:
    """Return a picture of two frames, the first one red."""
    frames = [Image.new("RGB", (2000, 100), colour) for colour in ("red", "blue")]
    return saved(lambda file: frames[0].save(file, form, save_all=True, append_images=frames[1:]))


def turned_jpeg(smaller: int = 1) -> bytes:
    """Return a photograph taken sideways, with a place and a note in it: left half red, right half blue."""
    wide, high = 3000 // smaller, 1000 // smaller
    shown = Image.new("RGB", (wide, high), "red")
    shown.paste("blue", (wide // 2, 0, wide, high))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a secret note"
    return saved(lambda file: shown.save(file, "JPEG", exif=exif))
