"""The chat at a terminal: a prompt that stays, answers that stream above it, a status line below.

Everything printed for good goes out between two drawings of the prompt, one post at a time. What is drawn is
decided in `transports.console.view`; here are the keys, the screen and the order of sending.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TextIO, assert_never

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import get_app
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_completions, has_focus, is_searching
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent, KeyProcessor
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import ColorDepth, create_output
from prompt_toolkit.patch_stdout import patch_stdout
from rich.cells import set_cell_size
from rich.filesize import decimal

from threads.errors import StoreUnavailable, TransportRejected
from threads.model import Attachment, Incoming, Outgoing, Sink, TextDelta, ThreadId, TurnEvent, TurnSettled
from transports.console import files, parse, render
from transports.console.lookups import Lookups
from transports.console.view import View

REDRAW_S = 0.05
TICK_S = 0.5
AGAIN = "Ctrl-C again to leave"
ESCAPE_S = 0.1
"""How long Escape waits for the rest of a sequence, and then for the Enter of Alt-Enter."""
DRAIN_S = 5.0
"""How long leaving may wait until the last message is on disk."""
PASTED = {Keys.Enter, Keys.ControlJ, Keys.Tab}
"""Keys that are text in a paste."""
MAX_QUOTED = 200
"""Characters of an earlier message that are repeated above its answer."""
PROMPT_ROWS = 8
"""Rows that a draft leaves to the prompt, its completions and the status line."""


class Terminal:
    """Serves one person until they leave."""

    exit_code = 0

    def __init__(
        self,
        sender: parse.Sender,
        commands: Mapping[str, str],
        history_file: Path | None,
        lookups: Lookups,
        streams: tuple[TextIO | None, TextIO | None],
    ) -> None:
        self._sender, self._commands, self._lookups = sender, commands, lookups
        self._stored: Mapping[str, str] | None = None
        """The stored threads, once they are looked up for a prompt."""
        self._view = View(parse.FIRST_THREAD)
        self._unsent: MemoryObjectSendStream[Incoming]
        self._attachments: list[Attachment] = []
        self._stop = ""
        """The last stop that was sent."""
        self._leaving = False
        self._printing = anyio.Lock()
        self._tasks: TaskGroup | None = None
        """Those of a conversation."""
        stdin, stdout = streams
        self._history = _History(history_file)
        self._prompt: PromptSession[str] = PromptSession(
            self._message,
            bottom_toolbar=self._toolbar,
            placeholder=self._placeholder,
            history=self._history,
            completer=_Choices(self._choices),
            complete_in_thread=True,
            complete_while_typing=Condition(self._is_command),
            key_bindings=self._keys(),
            refresh_interval=TICK_S,
            input=create_input(stdin) if stdin else None,
            output=create_output(stdout) if stdout else None,
        )
        self._prompt.app.min_redraw_interval = REDRAW_S
        self._prompt.app.ttimeoutlen = self._prompt.app.timeoutlen = ESCAPE_S
        self._prompt.default_buffer.on_text_changed += self._stay

    async def serve(self, sink: Sink) -> None:
        """Return when the person has left and *sink* has their messages."""
        # Unbounded: it fills only as fast as a person types.
        self._unsent, unsent = anyio.create_memory_object_stream[Incoming](math.inf)
        async with unsent, anyio.create_task_group() as group:
            group.start_soon(self._send, unsent, sink)
            with self._unsent, patch_stdout(raw=True):
                self._tasks = group
                await self._converse()
                self._tasks = None
            group.cancel_scope.deadline = anyio.current_time() + DRAIN_S

    async def post(self, outgoing: Outgoing) -> None:
        """Print above the prompt. Raises `TransportRejected` when the terminal is gone."""
        name = outgoing.thread.root
        heading = "" if name == self._view.current else name
        async with self._printing:
            lines = [*await self._question_of(outgoing), *self._view.take_tool_lines(name)]
            draw = partial(
                render.render,
                replace(outgoing, text=self._view.take_text(outgoing)),
                self._width,
                heading=heading,
                tools=lines,
                colour=self._colour,
                alone=not self._view.threads[name].questions,
            )
            text = await anyio.to_thread.run_sync(draw)
            self._view.add_post(name, outgoing.reply_to, final=outgoing.kind != "notice")
            if outgoing.choices and outgoing.kind == "notice":
                self._view.threads[name].questions.add(outgoing.key)
            await self._print(text)

    async def _print_finished(self) -> None:
        """Print for good what no further text of the current thread's answer changes."""
        async with self._printing:
            live, name = self._view.thread.live, self._view.current
            if live and (done := live.take_finished()):
                post = Outgoing(parse.thread_id(name), "", done)
                tools = self._view.take_tool_lines(name)
                await self._print_own(render.render(post, self._width, tools=tools, colour=self._colour))

    async def _question_of(self, outgoing: Outgoing) -> list[str]:
        """Return the line above an answer to an earlier session, whose question is not on this screen."""
        about = outgoing.reply_to
        if outgoing.kind == "notice" or not about or self._sender.sent(about):
            return []
        text = await anyio.to_thread.run_sync(self._lookups.asked, outgoing.thread, about)
        asked = " ".join(text.split())
        return [f"You asked: {asked[:MAX_QUOTED]}{'…' * (len(asked) > MAX_QUOTED)}"] if asked else []

    def show(self, thread: ThreadId, message_id: str, event: TurnEvent) -> None:
        self._view.threads[thread.root].apply(message_id, event, time.monotonic())
        self._take_dropped()
        if self._tasks and (not isinstance(event, TextDelta) or "\n" in event.text):
            self._tasks.start_soon(self._print_finished)
        self._prompt.app.invalidate()

    def _take_dropped(self) -> None:
        """Put what a stop dropped in the current thread back into the field."""
        dropped, self._view.thread.dropped = self._view.thread.dropped, []
        if dropped:
            field = self._prompt.default_buffer
            text = "\n".join(filter(None, [*(message.text for message in dropped), field.text]))
            field.document = Document(text, len(text))
            self._attachments[:0] = [file for message in dropped for file in message.files]

    async def _converse(self) -> None:
        await self._note(f"Thread {self._view.current}. /help lists the commands, Ctrl-D leaves.")
        await self._recall()
        while True:
            self._stored = None
            if fault := self._history.pop_fault():
                await self._note(f"What you type is not kept for next time: {fault}.")
            self._leaving = False
            try:
                line = await self._prompt.prompt_async(set_exception_handler=False)
            except EOFError:
                break
            except OSError:  # the terminal is gone
                return
            action = parse.action(line, self._commands)
            if action and not await self._run(action):
                break
        if any(thread.busy for thread in self._view.threads.values()):
            await self._note("Not everything is answered yet; the next start takes it up.")

    async def _run(self, action: parse.Action) -> bool:
        """Run a command of the person's. Returns False if they leave."""
        match action.kind:
            case "send":
                self._say(action.text)
            case "switch":
                self._view.switch_to(action.text)
                self._take_dropped()
                await self._recall()
                await self._print_finished()
            case "list":
                listing = self._view.listing(await anyio.to_thread.run_sync(self._lookups.threads))
                await self._print_own(render.table(listing, self._width, colour=self._colour))
            case "attach":
                await self._attach(action.text)
            case "help":
                await self._note(parse.help_text(self._commands, self._width, keys=parse.KEYS))
            case "reject":
                await self._error(action.text)
            case "quit":
                return False
            case _:
                assert_never(action.kind)
        return True

    async def _recall(self) -> None:
        """Show what was said last in the current thread, if this screen has not shown it yet."""
        thread = self._view.thread
        if not thread.recalled:
            thread.recalled = True
            here = parse.thread_id(self._view.current)
            if last := await anyio.to_thread.run_sync(self._lookups.last, here):
                await self._print_own(render.recall(last, self._width, colour=self._colour))

    async def _attach(self, path: str) -> None:
        if not path:
            self._attachments.clear()
            await self._note("Nothing goes with your next message.")
            return
        try:
            attachment = await anyio.to_thread.run_sync(files.read_attachment, path, self._sender.file_id())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no such path"
            await self._error(f"Not attached ({why}): {path}")
            return
        self._attachments.append(attachment)
        await self._note(f"{attachment.name} ({decimal(attachment.size)}) goes with your next message.")

    def _say(self, text: str) -> str:
        """Send a message, and return its id."""
        attachments = [] if text.startswith("/") else self._attachments
        message = self._sender.message(text, self._view.current, attachments)
        attachments.clear()
        self._view.thread.queued[message.id] = message
        self._unsent.send_nowait(message)
        return message.id

    async def _send(self, unsent: MemoryObjectReceiveStream[Incoming], sink: Sink) -> None:
        async for message in unsent:
            try:
                await sink(message)
            except StoreUnavailable:
                self.show(message.thread, message.id, TurnSettled("failed"))
                await self._error(
                    "I cannot save to my disk right now, so your message was not sent. Try again."
                )

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        at_prompt = has_focus(DEFAULT_BUFFER) & ~is_searching
        keys.add("enter", filter=at_prompt)(_enter)
        keys.add("c-j", filter=at_prompt)(_enter)
        keys.add("tab", filter=at_prompt & Condition(lambda: _pasted(get_app().key_processor)))(_tab)

        @keys.add("escape", filter=has_completions)
        def _close_list(event: KeyPressEvent) -> None:
            event.current_buffer.cancel_completion()

        @keys.add("down", filter=at_prompt & ~has_completions & Condition(self._is_command))
        def _down(event: KeyPressEvent) -> None:
            buffer, place = event.current_buffer, event.current_buffer.working_index
            buffer.auto_down(event.arg)
            if buffer.working_index == place:  # nothing newer in the history
                buffer.start_completion(select_first=True)

        @keys.add("escape", filter=at_prompt & ~has_completions)
        @keys.add("c-c", filter=~is_searching)
        @keys.add("<sigint>")
        def _interrupt(event: KeyPressEvent) -> None:
            thread = self._view.thread
            if thread.busy and self._stop not in thread.queued:
                self._stop = self._say("/stop")
            elif event.key_sequence[-1].key == Keys.Escape:
                return
            elif event.app.current_buffer.text:
                event.app.current_buffer.reset()
            elif self._leaving:
                event.app.exit(exception=EOFError)
            else:
                self._leaving = True

        @keys.add("escape", "enter")
        def _newline(event: KeyPressEvent) -> None:
            event.app.current_buffer.insert_text("\n")

        return keys

    def _message(self) -> StyleAndTextTuples:
        prompt: StyleAndTextTuples = [("bold", f"{self._view.current}> ")]
        size = self._prompt.app.output.get_size()
        rows = max(1, min(size.rows - PROMPT_ROWS, size.rows // 2))
        # What is drawn when the line is entered stays on the screen.
        if self._prompt.app.is_done:
            return prompt
        tools = [*self._view.thread.tool_lines]
        draft = render.draft(self._view.draft, size.columns, rows, tools=tools, colour=self._colour)
        return [*to_formatted_text(ANSI(draft)), *prompt]

    def _is_command(self) -> bool:
        return self._prompt.default_buffer.text.startswith("/")

    def _placeholder(self) -> StyleAndTextTuples:
        return [("ansibrightblack", AGAIN if self._leaving and not self._prompt.app.is_done else "")]

    def _stay(self, _: Buffer) -> None:
        self._leaving = False

    def _toolbar(self) -> str:
        return set_cell_size(self._view.status(time.monotonic()), self._width)

    def _choices(self, command: str) -> Mapping[str, str]:
        """Return what may follow a command, or all commands, each with a few words. It may block."""
        match command:
            case "/thread":
                if self._stored is None:
                    self._stored = self._lookups.threads()
                return {**dict.fromkeys(self._view.threads, ""), **self._stored}
            case "/model":
                return self._models
            case "":
                usages = {**parse.OWN_COMMANDS, **self._commands}
                return {"".join(usage.partition(" ")[:2]): meaning for usage, meaning in usages.items()}
        return {}

    @cached_property
    def _models(self) -> Mapping[str, str]:
        return self._lookups.models()

    @property
    def _width(self) -> int:
        return self._prompt.app.output.get_size().columns

    @property
    def _colour(self) -> bool:
        return self._prompt.app.color_depth != ColorDepth.DEPTH_1_BIT

    async def _note(self, text: str) -> None:
        await self._print_own(render.note(text, self._width, colour=self._colour))

    async def _error(self, text: str) -> None:
        error = Outgoing(parse.thread_id(self._view.current), key="", text=text, kind="error")
        await self._print_own(render.render(error, self._width, colour=self._colour))

    async def _print_own(self, text: str) -> None:
        with contextlib.suppress(TransportRejected):  # the next prompt fails too
            await self._print(text)

    async def _print(self, text: str) -> None:
        output = self._prompt.app.output
        # Cut off half-way, prompt_toolkit would never draw its prompt again.
        with anyio.CancelScope(shield=True):
            try:
                async with in_terminal():
                    output.enable_autowrap()
                    output.write_raw(text)
                    output.flush()
            except OSError as error:
                raise TransportRejected(f"the terminal is gone: {error.strerror}") from error


class _Choices(Completer):
    """Completes a command, and what may follow it, by its name or the words about it."""

    def __init__(self, choices: Callable[[str], Mapping[str, str]]) -> None:
        self._choices = choices

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002
        command, space, typed = document.text_before_cursor.partition(" ")
        for name, about in self._choices(command if space else "").items():
            if space and typed.lower() in f"{name} {about}".lower():
                yield Completion(name, -len(typed), display_meta=about)
            elif not space and name.startswith(command):
                yield Completion(name, -len(command), display_meta=about)


def _enter(event: KeyPressEvent) -> None:
    """Take a chosen completion, send a typed message, or end a line of pasted text.

    Most terminals mark their pastes, but not over a serial line or in some multiplexers.
    """
    buffer, following = event.current_buffer, _following(event.key_processor)
    if following == Keys.ControlJ and event.key_sequence[-1].key == Keys.Enter:
        return  # CR LF is one end of a line
    if _pasted(event.key_processor):
        buffer.insert_text("\n")
    elif buffer.complete_state and buffer.complete_state.current_completion:
        buffer.complete_state = None
        if buffer.text.endswith(" "):
            buffer.start_completion()  # with what may follow
    else:
        buffer.validate_and_handle()


def _tab(event: KeyPressEvent) -> None:
    """Insert a pasted tab; a typed one completes."""
    event.current_buffer.insert_text("\t")


def _pasted(keys: KeyProcessor) -> bool:
    """Return whether more text follows at once: nobody types that fast."""
    following = _following(keys)
    return following in PASTED or len(following or "") == 1


def _following(keys: KeyProcessor) -> str | None:
    return next((key.key for key in keys.input_queue if key.key != Keys.CPRResponse), None)


class _History(FileHistory):
    """The typed lines, stored for the next session. A full disk is not an error."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path or os.devnull)
        self._fault: str | None = None
        if path:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
                path.chmod(0o600)
            except OSError as error:
                self.filename = os.devnull
                self._fault = error.strerror

    def store_string(self, string: str) -> None:
        try:
            super().store_string(string)
        except OSError as error:
            self._fault = error.strerror

    def pop_fault(self) -> str | None:
        """Return what went wrong since the last look."""
        fault, self._fault = self._fault, None
        return fault
