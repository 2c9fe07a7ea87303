// The page: the list of threads, the open thread, and what the person sends.
"use strict";

const $ = (id) => document.getElementById(id);
const meta = (name) => document.querySelector(`meta[name=${name}]`).content;
const TOKEN = meta("token");
const MOST_BYTES = Number(meta("most-bytes"));
const COMMANDS = [...$("commands").options].map((option) => ({ usage: option.value, meaning: option.textContent }));

const thread = new Thread($("messages"), { press, edit, remove, judge });
let root = "";
let source = null;
let files = [];
let editing = null;

async function call(path, body, method = "POST") {
  const answer = await fetch(path, {
    method,
    headers: { "Content-Type": "application/json", "X-Threadfast-Token": TOKEN },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.status === 401) location.assign("/enter");
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(value.error || "The bot did not take this. Try again.");
  return value;
}

function fault(error) {
  const lost = error instanceof TypeError;
  $("fault").textContent = lost ? "The bot cannot be reached. Your text is still here." : error.message;
}

// --- the open thread

function open(name) {
  root = name || crypto.randomUUID();
  if (name !== location.hash.slice(1)) history.pushState(null, "", name ? `#${name}` : "/");
  thread.clear();
  connect();
  showList();
  showMenu(false);
  $("text").focus();
}

function connect() {
  source?.close();
  const mine = new EventSource(`/api/events?thread=${encodeURIComponent(root)}`);
  source = mine;
  mine.onopen = () => { $("link").textContent = ""; };
  mine.onmessage = (message) => {
    const events = JSON.parse(message.data);
    events.filter((event) => event.op === "list").forEach(listed);
    thread.apply(events.filter((event) => event.op !== "list"));
    $("stop").hidden = !thread.busy;
  };
  mine.onerror = () => {
    if (mine !== source) return;
    $("link").textContent = "Reconnecting …";
    if (mine.readyState === EventSource.CLOSED) setTimeout(reopen, 1500, mine);
  };
}

// The browser gives up for good when it gets no stream, as from a proxy whose bot restarts, or when the session is over.
async function reopen(closed) {
  if (closed !== source) return;
  try {
    const answer = await fetch("/api/threads");
    if (answer.status === 401) location.assign("/enter");
  } catch { /* the next try says more */ }
  connect();
}

// --- the list of threads

let threads = [];
let later = null; // changes that arrive while the list is on its way, and may be newer than it

function listed(event) {
  if (!event.thread) return loadList();
  later?.push(event);
  place(event);
  showList();
}

function place(event) {
  const known = threads.find((one) => one.thread === event.thread);
  threads = [{ ...event, title: known?.title || event.title }, ...threads.filter((one) => one !== known)];
}

async function loadList() {
  const mine = later = [];
  try {
    const answer = await call("/api/threads", undefined, "GET");
    if (mine !== later) return; // it was asked for again
    threads = answer.threads;
    mine.forEach(place);
    showList();
  } catch { /* the stream says that the bot is away */ }
  if (mine === later) later = null;
}

function showList() {
  const items = threads.map((one) => {
    const words = one.title || "(no words yet)";
    const link = el("a", { href: `#${one.thread}`, "aria-current": one.thread === root ? "page" : null }, words);
    return el("li", { class: one.busy ? "busy" : "" }, link, one.busy ? el("span", { class: "visually-hidden" }, " (working)") : null);
  });
  $("list").replaceChildren(...items);
  const title = threads.find((one) => one.thread === root)?.title || "New thread";
  $("title").textContent = title;
}

// On a phone the list lies over the thread.
function showMenu(shown) {
  document.body.classList.toggle("menu", shown);
  $("menu").setAttribute("aria-expanded", String(shown));
}

// --- sending

// What was sent without an answer keeps its id, so that a second press of Send is not a second message.
const unsure = new Map();

async function send(text, sent = [], name = root) {
  const same = JSON.stringify([name, text, sent]);
  if (!unsure.has(same)) unsure.set(same, crypto.randomUUID());
  await call("/api/messages", { id: unsure.get(same), thread: name, text, files: sent });
  unsure.delete(same);
  if (!location.hash && name === root) history.replaceState(null, "", `#${name}`);
}

// One after the other, in the order in which they were written. The field is free for the next at once.
let sending = Promise.resolve();

function submit(event) {
  event?.preventDefault();
  const draft = { text: $("text").value.trim(), files, editing, name: root };
  if (!draft.text && !draft.files.length) return;
  $("fault").textContent = "";
  compose("", [], null);
  sending = sending.then(() => deliver(draft));
}

async function deliver(draft) {
  try {
    if (draft.editing) await call("/api/edit", { id: draft.editing.id, thread: draft.name, text: draft.text });
    else await send(draft.text, draft.files, draft.name);
  } catch (error) {
    const later = $("text").value;
    compose(later ? `${draft.text}\n${later}` : draft.text, [...draft.files, ...files], draft.editing);
    fault(error);
  }
}

function compose(text, attached, edited) {
  $("text").value = text;
  files = attached;
  editing = edited;
  $("send").textContent = edited ? "Save" : "Send";
  showFiles();
  showCompletions();
  grow();
  $("text").focus();
}

async function act(work, button) {
  if (button) button.disabled = true;
  try {
    $("fault").textContent = "";
    await work();
  } catch (error) {
    if (button) button.disabled = false;
    fault(error);
  }
}

function press(command, button) { act(() => send(command), button); }

function edit(message) { compose(message.text, [], message); }

function remove(message) { act(() => call("/api/delete", { id: message.id, thread: root })); }

function judge(message, verdict, button) {
  act(async () => {
    await call("/api/feedback", { id: crypto.randomUUID(), thread: root, post: message.id, verdict });
    button.parentElement.replaceChildren("Thank you.");
  }, button);
}

// --- files

async function attach(list) {
  for (const file of list) {
    if (file.size > MOST_BYTES) {
      fault(new Error(`${file.name} is larger than ${size(MOST_BYTES)}.`));
      continue;
    }
    try {
      const answer = await fetch(`/api/files?name=${encodeURIComponent(file.name)}`, {
        method: "POST", headers: { "X-Threadfast-Token": TOKEN }, body: file,
      });
      const value = await answer.json();
      if (!answer.ok) throw new Error(value.error);
      files.push({ id: value.id, name: value.name });
      showFiles();
    } catch (error) {
      fault(error);
    }
  }
}

function showFiles() {
  $("files").replaceChildren(...files.map((file) => el(
    "li", {}, file.name,
    el("button", { type: "button", class: "quiet", "aria-label": `Remove ${file.name}`, click: () => {
      files = files.filter((one) => one !== file);
      showFiles();
    } }, "×"),
  )));
}

// --- commands

let chosen = 0;

function completions() {
  const text = $("text").value;
  return /^\/[a-z-]*$/i.test(text) ? COMMANDS.filter((command) => command.usage.startsWith(text.toLowerCase())) : [];
}

function showCompletions() {
  const found = completions();
  chosen = Math.min(chosen, Math.max(found.length - 1, 0));
  $("completions").hidden = !found.length;
  if (found.length) $("text").setAttribute("aria-activedescendant", `c-${chosen}`);
  else $("text").removeAttribute("aria-activedescendant");
  $("completions").replaceChildren(...found.map((command, place) => el(
    "li", { role: "option", id: `c-${place}`, "aria-selected": String(place === chosen), click: () => complete(command) },
    el("strong", {}, command.usage), ` ${command.meaning.replaceAll("`", "")}`,
  )));
  $(`c-${chosen}`)?.scrollIntoView({ block: "nearest" });
}

function complete(command) {
  $("text").value = `${command.usage.split(" ")[0]}${command.usage.includes(" ") ? " " : ""}`;
  showCompletions();
  $("text").focus();
}

function grow() {
  $("text").rows = Math.min(12, Math.max(1, $("text").value.split("\n").length));
}

// --- keys and buttons

$("text").addEventListener("keydown", (event) => {
  const found = completions();
  if (found.length && ["ArrowDown", "ArrowUp"].includes(event.key)) {
    chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
    event.preventDefault();
    showCompletions();
  } else if (found.length && event.key === "Tab") {
    event.preventDefault();
    complete(found[chosen]);
  } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    submit(event);
  } else if (event.key === "Escape" && editing) {
    compose("", [], null);
  }
});
$("text").addEventListener("input", () => { showCompletions(); grow(); });
$("text").addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) {
    event.preventDefault();
    attach(event.clipboardData.files);
  }
});
$("composer").addEventListener("submit", submit);
$("file").addEventListener("change", () => { attach($("file").files); $("file").value = ""; });
$("stop").addEventListener("click", () => act(() => send("/stop")));
$("new").addEventListener("click", () => open(""));
$("leave").addEventListener("click", async () => {
  await act(() => call("/api/leave", {}));
  location.assign("/enter");
});
$("menu").addEventListener("click", () => showMenu(!document.body.classList.contains("menu")));
$("threads").addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !document.body.classList.contains("menu")) return;
  showMenu(false);
  $("menu").focus();
});
document.querySelector("main").addEventListener("click", () => showMenu(false));
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); attach(event.dataTransfer.files); });
// A browser has six connections to a page: a tab that nobody sees leaves its own to the others.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source?.close();
  else connect();
});
window.addEventListener("hashchange", () => open(location.hash.slice(1)));
window.addEventListener("popstate", () => { if (location.hash.slice(1) !== root) open(location.hash.slice(1)); });
setInterval(() => thread.tick(), 1000);

// Until here, Enter would have begun a new line.
$("text").readOnly = false;
open(location.hash.slice(1));
loadList();
