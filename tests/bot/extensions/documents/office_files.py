"""Documents with text in every place where their formats can hold it, as bytes."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping

OFFICE = "http://schemas.openxmlformats.org"
NAMES = " ".join(
    f'xmlns:{prefix}="{address}"'
    for prefix, address in {
        "w": f"{OFFICE}/wordprocessingml/2006/main",
        "m": f"{OFFICE}/officeDocument/2006/math",
        "r": f"{OFFICE}/officeDocument/2006/relationships",
        "mc": f"{OFFICE}/markup-compatibility/2006",
        "a": f"{OFFICE}/drawingml/2006/main",
        "p": f"{OFFICE}/presentationml/2006/main",
        "v": "urn:schemas-microsoft-com:vml",
        "o": "urn:schemas-microsoft-com:office:office",
        "c": f"{OFFICE}/drawingml/2006/chart",
        "dgm": f"{OFFICE}/drawingml/2006/diagram",
        "pic": f"{OFFICE}/drawingml/2006/picture",
        "wp": f"{OFFICE}/drawingml/2006/wordprocessingDrawing",
        "xlink": "http://www.w3.org/1999/xlink",
        "text": "urn:oasis:names:tc:opendocument:xmlns:text:1.0",
        "table": "urn:oasis:names:tc:opendocument:xmlns:table:1.0",
        "office": "urn:oasis:names:tc:opendocument:xmlns:office:1.0",
        "draw": "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0",
        "style": "urn:oasis:names:tc:opendocument:xmlns:style:1.0",
    }.items()
)


def packed(parts: Mapping[str, str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return held.getvalue()


def kind_of(target: str) -> str:
    stem = re.sub(r"\d*\.\w+$", "", target.rpartition("/")[2])
    return "comments" if stem == "comment" else stem


def links(**targets: str) -> str:
    """Return the links of a part, each of the kind that its target's name says."""
    found = "".join(
        f'<Relationship Id="{name}" Type="{OFFICE}/{kind_of(target)}" Target="{target}"{" TargetMode=" + chr(34) + "External" + chr(34) if "://" in target else ""}/>'
        for name, target in targets.items()
    )
    return f'<Relationships xmlns="{OFFICE}/package/2006/relationships">{found}</Relationships>'


def enumerated(*targets: str) -> Iterator[tuple[str, str]]:
    yield from ((f"rId1{number}", target) for number, target in enumerate(targets))


def run(words: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{words}</w:t></w:r>'


def boxed(words: str) -> str:
    return f"<w:txbxContent><w:p>{run(words)}</w:p></w:txbxContent>"


def numbered(level: int) -> str:
    return f'<w:pPr><w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="7"/></w:numPr></w:pPr>'


NUMBERING = f"""<w:numbering {NAMES}><w:abstractNum w:abstractNumId="3">
<w:lvl w:ilvl="0"><w:start w:val="3"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:numFmt w:val="lowerRoman"/><w:lvlText w:val="%1.%2)"/></w:lvl></w:abstractNum>
<w:num w:numId="7"><w:abstractNumId w:val="3"/></w:num></w:numbering>"""

CHART = f"""<c:chartSpace {NAMES}><c:title><a:t>Costs</a:t></c:title><c:ser><c:tx><c:v>2026</c:v></c:tx>
<c:cat><c:pt><c:v>May</c:v></c:pt><c:pt><c:v>June</c:v></c:pt></c:cat>
<c:val><c:pt><c:v>7</c:v></c:pt><c:pt><c:v>8.5</c:v></c:pt></c:val></c:ser></c:chartSpace>"""

DIAGRAM = f"""<dgm:dataModel {NAMES}><dgm:pt><a:t>plan</a:t></dgm:pt><dgm:pt/><dgm:pt><a:t>do</a:t></dgm:pt></dgm:dataModel>"""

WORD_BODY = f"""
<w:p><w:pPr><w:pStyle w:val="berschrift1"/></w:pPr>{run("The title")}</w:p>
<w:p>{run("Plain, ")}<w:ins>{run("inserted, ")}</w:ins><w:del><w:r><w:delText>DELETED</w:delText></w:r></w:del>
<w:fldSimple w:instr="DATE">{run("in a field, ")}</w:fldSimple><w:smartTag>{run("tagged, ")}</w:smartTag>
<w:moveFrom>{run("MOVED AWAY")}</w:moveFrom><w:moveTo>{run("moved here")}</w:moveTo></w:p>
<w:p><w:hyperlink r:id="rId9">{run("a link")}</w:hyperlink></w:p>
<w:sdt><w:sdtContent><w:p>{run("in a control")}</w:p></w:sdtContent></w:sdt>
<w:p><w:sdt><w:sdtContent>{run("in a control of a line")}</w:sdtContent></w:sdt></w:p>
<w:p><w:r><mc:AlternateContent><mc:Choice Requires="wps">{boxed("in a box")}</mc:Choice>
<mc:Fallback><w:pict>{boxed("in a box")}</w:pict></mc:Fallback></mc:AlternateContent></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p>{run("one")}</w:p><w:tbl><w:tr><w:tc><w:p>{run("nested")}</w:p></w:tc></w:tr></w:tbl></w:tc>
<w:tc><w:p>{run("two")}</w:p></w:tc></w:tr></w:tbl>
<w:p><m:oMath><m:r><m:t>E=mc2</m:t></m:r></m:oMath></w:p>
<w:p><w:r><w:ruby><w:rt>{run("kanji")}</w:rt><w:rubyBase>{run("漢字")}</w:rubyBase></w:ruby></w:r></w:p>
<w:p>{run("Noted")}<w:r><w:footnoteReference w:id="2"/></w:r>{run(" and discussed")}<w:r><w:commentReference w:id="0"/></w:r></w:p>
<w:p>{run("See ")}<w:r><w:instrText>HYPERLINK "https://a.example/field"</w:instrText></w:r>{run("the field")}
<w:r><w:rPr><w:vanish/></w:rPr><w:t>HIDDEN</w:t></w:r><w:r><w:sym w:font="Wingdings" w:char="F0FC"/></w:r></w:p>
<w:p><w:r><w:ffData><w:checkBox><w:default w:val="0"/><w:checked/></w:checkBox></w:ffData></w:r>{run("agreed")}</w:p>
<w:p>{numbered(0)}{run("first")}</w:p><w:p>{numbered(1)}{run("deeper")}</w:p><w:p>{numbered(0)}{run("second")}</w:p>
<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr><w:p>{run("wide")}</w:p></w:tc><w:tc><w:p>{run("last")}</w:p></w:tc></w:tr></w:tbl>
<w:p><w:r><w:drawing><wp:inline><wp:docPr descr="a red house"/><pic:pic/></wp:inline></w:drawing></w:r></w:p>
<w:p><w:r><w:drawing><c:chart r:id="rId7"/></w:drawing></w:r></w:p>
<w:p><w:r><w:drawing><dgm:relIds r:dm="rId6"/></w:drawing></w:r></w:p>
<w:p><w:r><w:object><o:OLEObject r:id="rId5"/></w:object></w:r></w:p>
<w:altChunk r:id="rId8"/><w:altChunk r:id="rId4"/>"""

WORD = packed(
    {
        "word/document.xml": f"<w:document {NAMES}><w:body>{WORD_BODY}</w:body></w:document>",
        "word/_rels/document.xml.rels": links(
            rId8="chunk.htm",
            rId9="https://a.example/there",
            rId7="charts/chart1.xml",
            rId6="diagrams/data1.xml",
            rId5="embeddings/costs.xlsx",
            rId4="chunk.rtf",
            **dict(
                enumerated(
                    "styles.xml",
                    "header1.xml",
                    "footer1.xml",
                    "footnotes.xml",
                    "comments.xml",
                    "numbering.xml",
                )
            ),
        ),
        "word/styles.xml": f'<w:styles {NAMES}><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style></w:styles>',
        "word/header1.xml": f"<w:hdr {NAMES}><w:p>{run('at the top')}</w:p></w:hdr>",
        "word/footer1.xml": f"<w:ftr {NAMES}><w:p>{run('at the bottom')}</w:p></w:ftr>",
        "word/footnotes.xml": f'<w:footnotes {NAMES}><w:footnote w:id="2"><w:p>{run("below the line")}</w:p></w:footnote></w:footnotes>',
        "word/comments.xml": f'<w:comments {NAMES}><w:comment w:id="0" w:author="Ann"><w:p>{run("is that so?")}</w:p></w:comment></w:comments>',
        "word/numbering.xml": NUMBERING,
        "word/charts/chart1.xml": CHART,
        "word/diagrams/data1.xml": DIAGRAM,
        "word/chunk.rtf": "{\\rtf1 from rich text}",
        "word/chunk.htm": "<html><body><p>from a page</p></body></html>",
    }
)
READ_WORD = """[header] at the top

# The title

Plain, inserted, in a field, tagged, moved here

a link (https://a.example/there)

in a control

in a control of a line

in a box

| one nested | two |

E=mc2

[read: kanji]漢字

Noted [footnote: below the line] and discussed [comment by Ann: is that so?]

See (https://a.example/field) the field✓

☑ agreed

3. first

3.i) deeper

4. second

| wide |  | last |

[picture: a red house]

[chart: Costs; 2026: May 7, June 8.5]

[diagram: plan; do]

[embedded file: costs.xlsx]

from a page

from rich text

[footer] at the bottom

"""


def shape(words: str, link: str = "") -> str:
    more = f'<a:rPr><a:hlinkClick r:id="{link}"/></a:rPr>' if link else ""
    return f"<p:sp><p:txBody><a:p><a:r>{more}<a:t>{words}</a:t></a:r></a:p></p:txBody></p:sp>"


SLIDES = packed(
    {
        "ppt/presentation.xml": f'<p:presentation {NAMES}><p:sldIdLst><p:sldId r:id="b"/><p:sldId r:id="a"/></p:sldIdLst></p:presentation>',
        "ppt/_rels/presentation.xml.rels": links(a="slides/slide1.xml", b="slides/slide2.xml"),
        **{
            f"ppt/slides/slide{n}.xml": f"<p:sld {NAMES} show='{n - 1}'><p:cSld>{shape(f'Made as number {n}', 'c')}</p:cSld></p:sld>"
            for n in (1, 2)
        },
        "ppt/slides/_rels/slide2.xml.rels": links(
            a="../notesSlides/notesSlide1.xml", b="../comments/comment1.xml", c="https://a.example/s"
        ),
        "ppt/notesSlides/notesSlide1.xml": f"<p:notes {NAMES}>{shape('say it slowly')}</p:notes>",
        "ppt/comments/comment1.xml": f"<p:cmLst {NAMES}><p:cm><p:text>shorter?</p:text></p:cm></p:cmLst>",
    }
)
READ_SLIDES = """[slide 1]
Made as number 2 (https://a.example/s)

[notes] say it slowly

[comment] shorter?

[slide 2, hidden]
Made as number 1

"""

OPEN_TEXT = packed(
    {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "styles.xml": f"<office:s {NAMES}><office:master-styles><style:master-page><style:header><text:p>at the top</text:p></style:header></style:master-page></office:master-styles></office:s>",
        "content.xml": f"""<office:d {NAMES}><office:body><office:text>
<text:tracked-changes><text:p>DELETED</text:p></text:tracked-changes>
<text:h text:outline-level="2">Why</text:h>
<text:p>Some <text:span>words</text:span> of<text:s/>it<text:note><text:note-citation>1</text:note-citation>
<text:note-body><text:p>below</text:p></text:note-body></text:note>.</text:p>
<text:list><text:list-item><text:p>tea</text:p></text:list-item></text:list>
<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>
<table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>
<text:p><text:a xlink:href="https://a.example/o">a link</text:a>, page <text:page-number>7</text:page-number></text:p>
<text:p><draw:frame><draw:image/><svg:title xmlns:svg="svg">a house</svg:title></draw:frame></text:p>
<draw:frame><text:p>in a box</text:p></draw:frame></office:text></office:body></office:d>""",
    }
)
READ_OPEN_TEXT = """[header] at the top

## Why

Some words of it [note: below].

- tea

| a | b |

a link (https://a.example/o), page 7

[picture: a house]

in a box

"""

OPEN_SHEET = packed(
    {
        "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
        "content.xml": f"""<office:d {NAMES}><office:body><office:spreadsheet><table:table table:name="Costs">
<table:table-row><table:table-cell table:number-columns-repeated="2"/><table:table-cell table:number-columns-repeated="2">
<text:p>x</text:p></table:table-cell><table:table-cell table:number-columns-repeated="1000"/></table:table-row>
<table:table-row table:number-rows-repeated="2"><table:table-cell office:value="7"/><table:covered-table-cell/>
<table:table-cell table:formula="of:=[.A1]+1"/></table:table-row>
<table:table-row table:number-rows-repeated="1000000"><table:table-cell table:number-columns-repeated="1024"/></table:table-row>
</table:table></office:spreadsheet></office:body></office:d>""",
    }
)
READ_OPEN_SHEET = """## Costs
|  |  | x | x |
| 7 |  | =[.A1]+1 |
| 7 |  | =[.A1]+1 |
"""

BOOK = packed(
    {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<c xmlns="x"><rootfiles><rootfile full-path="OEBPS/c.opf"/></rootfiles></c>',
        "OEBPS/c.opf": '<package xmlns="x"><manifest><item id="a" href="one%20more.xhtml"/><item id="b" href="two.xhtml"/></manifest>'
        '<spine><itemref idref="b"/><itemref idref="a"/></spine></package>',
        "OEBPS/one more.xhtml": "<html><body><p>the end</p><aside>a note</aside></body></html>",
        "OEBPS/two.xhtml": "<html><body><p>the beginning</p></body></html>",
    }
)

RICH_TEXT = rb"""{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 Arial;}{\f1\fcharset204 Arial;}}{\info{\author ANN}}
{\header at the top\par}Gr\'fc\'dfe \b bold\b0 , \u8364? 5{\footnote below the line}\par {\f1\'c4\'e0} {\v HIDDEN}{\deleted GONE}
{\field{\*\fldinst{HYPERLINK "https://a.example/r"}}{\fldrslt a link}}{\*\annotation is that so?}\u-10179?\u-8704?\par
\trowd\intbl a\cell b\cell\row {\pict 00ff}{\*\shpinst{\sp{\sn x}{\sv y}}{\shptxt in a box}}{\upr{ansi}{\*\ud{\u252?}}}}"""
READ_RICH_TEXT = """[header] at the top
Grüße bold, € 5 [footnote: below the line]
Да a link (https://a.example/r) [comment: is that so?]😀
a | b
 [picture]
in a box
ü"""

NOTEBOOK = json.dumps(
    {
        "nbformat": 4,
        "cells": [
            {"cell_type": "markdown", "source": ["# Title\n", "words"]},
            {
                "cell_type": "code",
                "source": "print(1)",
                "outputs": [{"output_type": "stream", "text": ["1\n"]}],
            },
        ],
    }
).encode()

MAIL = b"""From: Ann <ann@a.example>
To: bob@a.example
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: base64

U2No9m5lbiBUYWc=
--x
Content-Type: text/csv
Content-Disposition: attachment; filename="numbers.csv"

a,b
1,2
--x--
"""
READ_MAIL = """From: Ann <ann@a.example>
To: bob@a.example
Subject: Grüße

Schönen Tag

[attachment: numbers.csv]
a,b
1,2"""
