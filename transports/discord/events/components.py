"""The words of a message's components: buttons, menus, and the texts and pictures of Components V2; pure.

`KINDS` says what is read of each type. Our library puts a text in place of a type that it does not know
(`transports.discord.api.payloads`). https://docs.discord.com/developers/components/reference
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from discord import ComponentType

Component: TypeAlias = Any
"""One of the library's classes of components, which share no fields."""

Read = Callable[[Component], str]


def words_of(components: Iterable[Component]) -> str:
    """Return what people read in *components*, in Discord's markup, in a line or more for each."""
    return "\n".join(filter(None, map(_words, components)))


def _words(component: Component) -> str:
    return KINDS[component.type](component)


def _children(component: Component) -> str:
    return words_of(component.children)


def _nothing(_: Component) -> str:
    return ""


def _button(button: Component) -> str:
    label = " ".join(filter(None, (str(button.emoji or ""), button.label or "")))
    return f"[button: {f'[{label}]({button.url})' if button.url else label}]"


def _menu(menu: Component) -> str:
    return _lines([menu.placeholder, *_options(getattr(menu, "options", ()))])


def _choices(group: Component) -> str:
    return _lines(_options(group.options))


def _options(options: Iterable[Component]) -> Sequence[str]:
    return [f"- {' - '.join(filter(None, (option.label, option.description)))}" for option in options]


def _lines(words: Iterable[str | None]) -> str:
    return "\n".join(filter(None, words))


def _picture(words: str | None) -> str:
    return f"[image: {words}]" if words else "[image]"


def _file(file: Component) -> str:
    return f"[file: {file.name or file.media.url.rpartition('/')[2].partition('?')[0]}]"


KINDS: Mapping[ComponentType, Read] = {
    ComponentType.action_row: _children,
    ComponentType.button: _button,
    ComponentType.select: _menu,
    ComponentType.text_input: lambda field: _lines([field.label, field.placeholder, field.value]),
    ComponentType.user_select: _menu,
    ComponentType.role_select: _menu,
    ComponentType.mentionable_select: _menu,
    ComponentType.channel_select: _menu,
    ComponentType.section: lambda section: words_of([*section.children, section.accessory]),
    ComponentType.text_display: lambda text: text.content,
    ComponentType.thumbnail: lambda picture: _picture(picture.description),
    ComponentType.media_gallery: lambda gallery: _lines(_picture(item.description) for item in gallery.items),
    ComponentType.file: _file,
    ComponentType.separator: _nothing,
    ComponentType.container: _children,
    ComponentType.label: lambda label: _lines([label.label, label.description, _words(label.component)]),
    ComponentType.file_upload: _nothing,
    ComponentType.radio_group: _choices,
    ComponentType.checkbox_group: _choices,
    ComponentType.checkbox: _nothing,
}
