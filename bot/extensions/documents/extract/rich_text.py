"""The text of an RTF file, with its notes, headers, comments and the addresses of its links.

The library for it, striprtf, drops those. https://latex2rtf.sourceforge.net/rtfspec.html
"""

from __future__ import annotations

import codecs
import re
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from bot.extensions.documents.problems import LeftOut

from .result import MAX_TEXT, SOFT_S, Extraction, text
from .text import clean

_TOKEN = re.compile(
    r"\\(?P<word>[A-Za-z]{1,32})(?P<number>-?\d{1,10})?[ ]?|\\'(?P<hex>[0-9A-Fa-f]{2})|\\(?P<sign>[^A-Za-z])"
    r"|(?P<brace>[{}])|[\r\n]+|(?P<plain>[^\\{}\r\n]+)",
    re.DOTALL,
)
_SIGNS = {
    "par": "\n", "line": "\n", "sect": "\n\n", "page": "\n\n", "row": "\n", "nestrow": "\n", "cell": " | ",
    "nestcell": " | ", "tab": "\t", "emdash": "\u2014", "endash": "\u2013", "emspace": "\u2003",
    "enspace": "\u2002", "bullet": "\u2022", "lquote": "\u2018", "rquote": "\u2019", "ldblquote": "\u201c",
    "rdblquote": "\u201d", "~": "\xa0", "{": "{", "}": "}", "\\": "\\", "_": "\u2011", "\n": "\n", "\r": "\n",
}  # fmt: skip
_NOTES = {
    "footnote": " [footnote: {}]", "annotation": " [comment: {}]", "atnauthor": " [comment by {}]",
    "header": "[header] {}\n", "headerl": "[header] {}\n", "headerr": "[header] {}\n", "headerf": "[header] {}\n",
    "footer": "[footer] {}\n", "footerl": "[footer] {}\n", "footerr": "[footer] {}\n", "footerf": "[footer] {}\n",
    "fldinst": "", "fldrslt": "{}", "shptxt": "\n{}\n", "shpinst": "{}", "shppict": "{}",
    "pict": " [picture] ", "object": "{}", "result": "{}", "listtext": "{}", "pntext": "{}", "moMathPara": "{}",
    "moMath": "{}", "mr": "{}", "objclass": " [embedded file: {}] ",
}  # fmt: skip
"""Groups that are read, and how they are shown."""

_SKIPPED = frozenset((
    "fonttbl", "colortbl", "stylesheet", "info", "listtable", "listoverridetable", "revtbl", "rsidtbl",
    "generator", "themedata", "nonshppict", "colorschememapping", "latentstyles", "datastore", "upr",
    "fldtype", "sp", "sn", "sv", "objdata", "objname", "xmlnstbl", "pgptbl", "filetbl", "nonesttables",
    "nesttableprops", "atnid", "atndate", "atnref", "atnicn", "atnparent", "bkmkstart", "bkmkend", "ftnsep",
    "ftnsepc", "ftncn", "aftnsep", "aftnsepc", "aftncn", "xe", "tc", "mmathPr", "pnseclvl", "pn", "picprop",
    "blipuid", "template", "private",
))  # fmt: skip
"""Groups of settings. Of those that a file itself marks as such, only the ones above are read."""

_LINK = re.compile(r'\s*HYPERLINK\s+"([^"]+)"', re.IGNORECASE)
_DEEPEST = 20
"""Notes in notes, and the like."""
_LOOKS = 10_000
"""Tokens between two looks at the clock."""
_LINE_END = re.compile(r"(?: \| )?[ \t]*\n")
"""With the border of a row's last cell."""
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_CHARSETS = {
    77: "mac_roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "big5hkscs", 161: "cp1253",
    162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874",
    238: "cp1250", 255: "cp850",
}  # fmt: skip
"""Encodings of fonts, where they have one of their own."""


@dataclass(frozen=True, slots=True)
class _Group:
    """What counts to the end of a group. ``name`` is that of a group whose words go together."""

    name: str = ""
    skipped: bool = False
    hidden: bool = False
    font: int = -1
    skip: int = 1
    """Characters after one in Unicode that stand for it in older programs."""


class _Reader:
    def __init__(self, left_out: set[LeftOut]) -> None:
        self._left_out = left_out
        self._encoding = "cp1252"
        self._fonts: dict[int, str] = {}
        self._group, self._outer = _Group(), list[_Group]()
        self._words: list[list[str]] = [[]]
        self._bytes = bytearray()
        self._unread = self._said = 0
        self._marked = False
        self._default, self._address = -1, ""

    def read(self, source: str) -> str:
        at, tokens = 0, 0
        while found := _TOKEN.search(source, at):
            at, tokens = found.end(), tokens + 1
            if self._said > MAX_TEXT or (tokens % _LOOKS == 0 and time.process_time() > SOFT_S):
                self._left_out.add("rest")
                break
            if found["hex"] or found["plain"]:
                self._take(bytes.fromhex(found["hex"]) if found["hex"] else found["plain"].encode("latin-1"))
                continue
            self._flush()
            if word := found["word"]:
                at += self._control(word, int(found["number"]) if found["number"] else None)
            elif found["brace"]:
                self._brace(found["brace"])
            elif found["sign"]:
                self._sign(found["sign"])
        self._flush()
        while self._outer:
            self._brace("}")
        words = _LINE_END.sub("\n", "".join(self._words[0]))
        return _PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), words)

    def _take(self, data: bytes) -> None:
        """Take letters, but those that stand for one in Unicode."""
        skipped = min(self._unread, len(data))
        self._unread -= skipped
        if not (self._group.skipped or self._group.hidden):
            self._bytes += data[skipped:]

    def _flush(self) -> None:
        if self._bytes:
            self._said += len(self._bytes)
            encoding = self._fonts.get(self._group.font, self._encoding)
            self._words[-1].append(self._bytes.decode(encoding, "replace"))
            self._bytes.clear()

    def _say(self, words: str) -> None:
        if self._unread:
            self._unread -= 1
        elif not (self._group.skipped or self._group.hidden):
            self._words[-1].append(words)

    def _brace(self, brace: str) -> None:
        self._unread = 0
        if brace == "{":
            self._outer.append(self._group)
            self._group = replace(self._group, name="")
        elif self._outer:
            closed, self._group = self._group, self._outer.pop()
            if closed.name:
                self._close(closed.name, "".join(self._words.pop()))

    def _close(self, name: str, words: str) -> None:
        """Put the words of a group that ends into the one around it."""
        if name == "fldinst":
            link = _LINK.match(words)
            self._address = f" ({link[1]})" if link else ""
        elif name == "fldrslt":
            words, self._address = words + self._address, ""
        if words.strip() or name == "pict":
            form = _NOTES[name]
            self._words[-1].append(words if form == "{}" else form.replace("{}", words.strip("\n")))

    def _sign(self, sign: str) -> None:
        if sign == "*":
            self._marked = True
        elif sign in _SIGNS:
            self._say(_SIGNS[sign])

    def _control(self, word: str, number: int | None) -> int:
        """Take a control word; return how many characters after it are raw data."""
        marked, self._marked = self._marked, False
        if word == "bin":
            return max(0, number or 0)
        if word == "u" and number is not None:
            self._say(chr(number % 0x10000))
            self._unread = self._group.skip
        elif word in _SIGNS:
            self._say(_SIGNS[word])
        elif word in _NOTES and not (self._group.skipped or self._group.name) and len(self._words) < _DEEPEST:
            self._open(word)
        elif marked or word in _SKIPPED:
            self._group = replace(self._group, skipped=word != "ud")
        else:
            self._set(word, number)
        return 0

    def _set(self, word: str, number: int | None) -> None:
        """Take a word that changes how what follows is read."""
        group = self._group
        match word:
            case "uc":
                self._group = replace(group, skip=number or 0)
            case "f":
                self._group = replace(group, font=number or 0)
            case "v" | "deleted":
                self._group = replace(group, hidden=number != 0)
            case "plain":
                self._group = replace(group, hidden=False, font=self._default)
            case "deff":
                self._default = number or 0
            case "fcharset" if number in _CHARSETS:
                self._fonts[group.font] = _CHARSETS[number]
            case "ansicpg":
                self._encoding = _known(f"cp{number}") or self._encoding
            case "mac" | "pc" | "pca":
                self._encoding = {"mac": "mac_roman", "pc": "cp437", "pca": "cp850"}[word]

    def _open(self, word: str) -> None:
        """Begin a group that is read. Of a picture only the place is."""
        if word in ("pict", "objclass"):
            self._left_out.add("pictures" if word == "pict" else "embedded")
        self._group = replace(self._group, name=word, skipped=word == "pict")
        self._words.append([])


def rich_text(data: bytes) -> Extraction:
    """Return an RTF file's text; raises `Unreadable`, or any error for a broken one."""
    left_out = set[LeftOut]()
    return text([clean(_Reader(left_out).read(data.decode("latin-1"))).strip()], left_out=left_out)


def _known(encoding: str) -> str:
    with suppress(LookupError):
        return codecs.lookup(encoding).name
    return ""
