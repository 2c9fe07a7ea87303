"""A model's text made safe for Slack, character by character; pure.

Slack reads ``<!channel>``, ``<@U1>``, ``<#C1>`` and ``<url|label>`` in Markdown too, so no ``<`` of a model's gets
through: in prose it becomes ``&lt;``, in code a zero-width space follows it where it would mean something. The
output is plain Markdown (three backticks per fence, one per inline code, inline links only, nothing left open), so
no other reader takes code for prose or words for a link:

| state      | on                                    | goes to    |
|------------|---------------------------------------|------------|
| prose      | a line of three ticks or tildes       | code       |
| code       | such a line, as long or longer        | prose      |
| code       | a line without the quote's ``>``      | prose      |
| either     | the end of the text: closes the code  | the end    |

Every step reads ahead within a fixed distance, and waits while the text is still ambiguous. So the output does not
depend on how the text is cut into pieces, and no piece is held back beyond that distance: a link, code or address
that is not closed within it is written as words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from transports.base.text import PREFIX, Fence, clean, continued, trim_address
from transports.slack.markdown.links import (
    ZERO_WIDTH,
    Links,
    break_live,
    fit,
    host_of,
    names_another_host,
    without_entities,
    without_pings,
    written_as_code,
)
from transports.slack.markdown.lookahead import CODE, INFO, LINK, SHORT, WORD, Lookahead, NeedMore

_STRAY_TICK = "\u02cb"  # looks like a backtick, and is not markup
_ESCAPED = {"<": "&lt;", "`": _STRAY_TICK, "\\": "\\\\"}

_CJK = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
_PLAIN = re.compile(r"(?:[A-Za-z0-9]{1,40}+(?=[ ,;)'\"])|[^A-Za-z0-9\n<>\[\]!@`*\\~])++")
_WORDS = re.compile(rf"[A-Za-z0-9][A-Za-z0-9+._-]{{0,{WORD - 1}}}")
_DOMAIN = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,}", re.IGNORECASE)
_ADDRESS = re.compile(
    r"(?:\[[0-9a-fA-F:.]{0,60}\])?[^\s<>\"`|\[\]\u3001\u3002\u3008-\u3011\uff01-\uff0f\uff1a-\uff1f]*"
)
_LITERAL = re.compile(r"\[[0-9a-fA-F:.]{0,60}")
_ANGLE = re.compile(r"<([^<>|\n]*)(?:\|([^<>\n]*))?>")
_SCHEME = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]{0,31}+")
_LABEL = re.compile(rf"<[^\s<>|`!@#][^<>|\n`]{{0,{INFO}}}")
_ADDRESSED = re.compile(r"(?:[a-z][a-z0-9+.-]{0,31}://|mailto:|tel:)[^\s<>|]*", re.IGNORECASE)
_LIVE_IN_CODE = re.compile(
    r"<(?=[!@#]|[a-z][a-z0-9+.-]{0,31}://|mailto:|tel:)|@(?=here|channel|everyone)", re.IGNORECASE
)
_PREFIX = re.compile(PREFIX)
_LONGEST_PREFIX = 40


def safe(text: str, links: Links) -> str:
    """Return *text* without pings, previews and misleading links."""
    stream = SafeStream(links)
    return stream.feed(text) + stream.end()


def inert_code(text: str) -> str:
    """Return code without live mentions and links."""
    return _LIVE_IN_CODE.sub(lambda found: found[0] + ZERO_WIDTH, text)


class SafeStream:
    """`safe` for text in pieces: the results of `feed` and `end`, joined, are `safe` of the whole."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._held = ""
        self._final = False
        self._line = ""  # how the line at hand began, as written
        self._last = ""  # the character given out last
        self._bold = False
        self._code: Fence | None = None  # the open one

    def feed(self, delta: str) -> str:
        """Take the next piece; return the decided output."""
        self._held += clean(delta)
        return self._drain()

    def end(self) -> str:
        """Return the rest, and close an open fence."""
        self._final = True
        rest = self._drain()
        code, self._code = self._code, None
        if code is None:
            return rest
        return rest + ("" if self._last == "\n" else "\n") + f"{code.prefix}```"

    def _drain(self) -> str:
        text, at = self._held, 0
        ahead = Lookahead(text, self._final)
        output: list[str] = []
        while at < len(text):
            try:
                end, piece = self._step(ahead, at)
            except NeedMore:
                break
            if "\n" in text[at:end]:
                self._line = ""
            elif end > at:
                self._line = (self._line + text[at : min(end, at + _LONGEST_PREFIX + 1)])[
                    : _LONGEST_PREFIX + 1
                ]
            self._last = piece[-1:] or self._last
            output.append(piece)
            at = end
        self._held = text[at:]
        return "".join(output)

    def _step(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        """Return where the next step begins, and the output. Raises `NeedMore` before any change of state."""
        if self._code is not None:
            return self._code_rest(ahead, at) if self._line else self._code_line(ahead, at, self._code)
        if found := _PLAIN.match(ahead.text, at):
            return found.end(), found[0]
        step = self._STEPS.get(ahead.text[at])
        return step(self, ahead, at) if step else self._word(ahead, at)

    def _newline(self, _: Lookahead, at: int) -> tuple[int, str]:
        self._bold = False
        return at + 1, "\n"

    def _closing_bracket(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        """Separate ``]`` from a following ``(`` or ``:``, which would make a link of it."""
        ahead.need(at, 2)
        return at + 1, "]" + (ZERO_WIDTH if ahead.text[at + 1 : at + 2] in ("(", ":") else "")

    def _ticks(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        end = ahead.run(at)
        opened = self._fence(ahead, at, end) if end - at >= 3 else None
        if opened is not None:
            return opened
        if ahead.text[at] == "~":
            return end, ahead.text[at:end]
        if (closing := ahead.closing_ticks(at, end)) is None:
            return end, _STRAY_TICK * (end - at)
        content = ahead.text[end:closing].replace("`", _STRAY_TICK)
        if content.startswith(" ") and content.endswith(" ") and content.strip():
            content = content[1:-1]
        return closing + end - at, self._apart(f"`{inert_code(content)}`")

    def _fence(self, ahead: Lookahead, at: int, end: int) -> tuple[int, str] | None:
        """Open a fence if the marks from *at* to *end* begin one."""
        if len(self._line) > _LONGEST_PREFIX or not _PREFIX.fullmatch(self._line):
            return None
        if (info_end := ahead.text.find("\n", end, end + INFO + 1)) < 0:
            ahead.need(end, INFO + 1)
            if len(ahead.text) > end + INFO:
                return None
            info_end = len(ahead.text)
        info = ahead.text[end:info_end]
        if ahead.text[at] == "`" and "`" in info:
            return None
        language = re.sub(r"[^\w+#.-]", "", (info.split() or [""])[0])[:40]
        prefix = continued(self._line)
        self._code = Fence(prefix, ahead.text[at:end], language, prefix.count(">"))
        return min(info_end + 1, len(ahead.text)), f"```{language}\n"

    def _apart(self, piece: str) -> str:
        """Separate *piece* from the output before: code from a tick or backslash, a link from ``!``."""
        before, first = self._last, piece[:1]
        joins = (first == "`" and before in ("`", "\\")) or (first == "[" and before in ("!", "]"))
        return ZERO_WIDTH + piece if joins else piece

    def _angle(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        """Read ``<https://…>``, and ``<https://…|label>`` in either order, as links; escape any other ``<``."""
        ahead.need(at, 2)
        if (scheme := _SCHEME.match(ahead.text, at)) is not None:
            ahead.need(scheme.end(), 1)
        is_address = scheme is not None and ahead.text[scheme.end() : scheme.end() + 1] == ":"
        label = None if is_address else _LABEL.match(ahead.text, at)
        if label is not None and label.end() < at + INFO:
            ahead.need(label.end(), 1)
        if not is_address and not (label and ahead.text[label.end() : label.end() + 1] == "|"):
            return at + 1, "&lt;"
        found = _ANGLE.match(ahead.text, at, at + LINK)
        if parts := found and _halves(found[1], found[2]):
            return found.end(), self._link(*parts)
        if not re.compile(r"[<>\n]").search(ahead.text, at + 1, at + LINK):
            ahead.need(at, LINK)
        return at + 1, "&lt;"

    def _bracket(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        image = ahead.text[at] == "!"
        if image:
            ahead.need(at, 2)
        found = ahead.inline_link(at + image) if ahead.text[at + image : at + image + 1] == "[" else None
        if found is None:
            return at + 1, ahead.text[at]
        end, label, url = found
        return end, self._link(label or ("image" if image else ""), url)

    def _link(self, label: str, url: str) -> str:
        label, address = label.strip(), re.sub(r"(?i)^https?://", "", url)
        same = label.rstrip("/") in ("", url.rstrip("/"), address.rstrip("/"))
        if (host := host_of(url)) is None or not self._links.clickable(url):
            rendered = written_as_code(url)
            return self._apart(rendered if same else f"{_label_in_prose(label)} ({rendered})")
        rendered = f"[{fit(address) if same else _label_of_link(label)}]({fit(url)})"
        return self._apart(rendered) + (f" ({host})" if names_another_host(label, host) else "")

    def _ping(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        if _LIVE_IN_CODE.match(ahead.text, at):
            return at + 1, "@" + ZERO_WIDTH
        rest = ahead.text[at + 1 : at + 9].lower()
        if any(name.startswith(rest) for name in ("here", "channel", "everyone")):
            ahead.need(at, 9)
        return at + 1, "@"

    def _stars(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        """Separate bold from a CJK letter, and escape the stars of ``2*3*4``."""
        end = ahead.run(at)
        following, run = ahead.text[end : end + 1], ahead.text[at:end]
        if run == "*":
            return end, "\\*" if self._last.isdigit() and following.isdigit() else "*"
        if len(run) > 3 or not (self._bold or following.strip()):
            return end, run
        self._bold = not self._bold
        if self._bold:
            return end, (ZERO_WIDTH if _CJK.match(self._last) else "") + run
        return end, run + (ZERO_WIDTH if _CJK.match(following) else "")

    def _backslash(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        ahead.need(at, 2)
        escaped = _ESCAPED.get(ahead.text[at + 1 : at + 2])
        return (at + 2, escaped) if escaped else (at + 1, "\\")

    def _word(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        """Read a word, or the address that begins with it."""
        if (found := _WORDS.match(ahead.text, at)) is None:
            return at + 1, ahead.text[at]
        end, word = found.end(), found[0]
        if len(word) < WORD:
            ahead.need(end, 1)
        if ahead.text[end : end + 3] in (":", ":/"):
            ahead.need(end, 3)
        if ahead.text.startswith("://", end) or (
            word.lower() in ("mailto", "tel") and ahead.text.startswith(":", end)
        ):
            return self._address(ahead, at, end, "")
        domain = word.lower().startswith("www.") or _DOMAIN.fullmatch(word)
        if domain and ahead.text[end : end + 1] in ("?", ":"):
            ahead.need(end, 2)
        path = re.compile(r"/|[?]\S|:[0-9]").match(ahead.text, end)
        if domain and (path or word.lower().startswith("www.")):
            return self._address(ahead, at, end, "http://")
        return end, word

    def _address(self, ahead: Lookahead, at: int, end: int, scheme: str) -> tuple[int, str]:
        """Read the address at *at*, before which *scheme* belongs, and whose first word ends at *end*."""
        begins = end + (3 if ahead.text.startswith("://", end) else 0)
        if literal := _LITERAL.match(ahead.text, begins):
            ahead.need(literal.end(), 1)  # an IPv6 address only if its bracket is closed
        found = _ADDRESS.match(ahead.text, begins, max(begins, at + LINK))
        stop = found.end() if found else begins
        if stop < at + LINK:
            ahead.need(stop, 1)
        stop = at + len(trim_address(ahead.text[at:stop]))
        if stop <= begins and not scheme:
            word = ahead.text[at:end]
            inert = word.lower().startswith("www.") and not self._links.clickable(f"http://{word}")
            # What comes next must not become its host.
            broken = f":{ZERO_WIDTH}//" if begins > end else ""
            return begins, (self._apart(written_as_code(word)) if inert else word) + broken
        address = ahead.text[at:stop]
        if not self._links.clickable(scheme + address):
            return stop, self._apart(written_as_code(address))
        following = ahead.text[stop : stop + 1]
        return stop, without_pings(address) + (" " if following in tuple("<[`") or following > "\x7f" else "")

    def _code_line(self, ahead: Lookahead, at: int, code: Fence) -> tuple[int, str]:
        """Begin a line of a fence: its end, the end of the quote around it, or more code."""
        if (inside := ahead.unquoted(at, code.quotes)) is None:
            self._code = None
            return at, f"{code.prefix}```\n"
        indent = len(code.prefix.rpartition(">")[2])
        start = ahead.over(inside, " \t", max(indent, 1) if code.quotes else indent)
        mark = ahead.over(start, " \t", SHORT)
        end = ahead.over(mark, code.mark[0], CODE)
        if end - mark >= len(code.mark):
            rest = ahead.over(end, " \t", SHORT)
            if ahead.text[rest : rest + 1] in ("", "\n"):
                self._code = None
                return rest, f"{code.prefix}```"
        if start == len(ahead.text):
            return start, ""
        begins = code.prefix if ahead.text[start] != "\n" else code.prefix.rstrip()
        end, piece = self._code_rest(ahead, start)
        return end, begins + piece

    def _code_rest(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        if found := re.compile(r"[^\n<@`]+").match(ahead.text, at):
            return found.end(), found[0]
        match ahead.text[at]:
            case "@":
                return self._ping(ahead, at)
            case "`":
                return self._ticks_in_code(ahead, at)
            case "<":
                if re.compile(r"<(?:[A-Za-z][A-Za-z0-9+.-]{0,31}(?::/?)?)?").fullmatch(ahead.text, at):
                    ahead.need(at, SHORT)
                return at + 1, "<" + (ZERO_WIDTH if _LIVE_IN_CODE.match(ahead.text, at) else "")
            case char:
                return at + 1, char

    def _ticks_in_code(self, ahead: Lookahead, at: int) -> tuple[int, str]:
        """Break up ticks that could be read as the fence's end."""
        end = ahead.run(at)
        pairs = [ahead.text[start : min(start + 2, end)] for start in range(at, end, 2)]
        return end, ZERO_WIDTH.join(pairs) + (ZERO_WIDTH if end - at == CODE else "")

    _STEPS: ClassVar[Mapping[str, Callable[[SafeStream, Lookahead, int], tuple[int, str]]]] = {
        "\n": _newline,
        "`": _ticks,
        "~": _ticks,
        "<": _angle,
        "[": _bracket,
        "!": _bracket,
        "@": _ping,
        "*": _stars,
        "]": _closing_bracket,
        "\\": _backslash,
    }


def _halves(first: str, second: str | None) -> tuple[str, str] | None:
    """Return the label and the target of ``<first|second>``, None if neither half is an address."""
    if _ADDRESSED.fullmatch(first):
        return second or "", without_entities(first)
    swapped = second is not None and _ADDRESSED.fullmatch(second.strip())
    return (first, without_entities(second.strip())) if second and swapped else None


def _label_in_prose(label: str) -> str:
    stream = SafeStream(Links())
    stream._line = "x"  # noqa: SLF001 - our own; amid a line no fence begins
    return stream.feed(label) + stream.end()


def _label_of_link(label: str) -> str:
    """Return *label* without links, pings and what could end it."""
    label = break_live(label.rstrip("\\").replace("<", "&lt;"))
    return label.replace("`", _STRAY_TICK) if label.count("`") % 2 else label
