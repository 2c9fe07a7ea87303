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
  document.body.classList.remove("menu");
  $("menu").setAttribute("aria-expanded", "false");
  $("text").focus();
}

function connect() {
  source?.close();
  const mine = new EventSource(`/api/events?thread=${encodeURIComponent(root)}`);
  source = mine;
  mine.onopen = () => { $("link").textContent = ""; };
  mine.onmessage = (message) => {
    const events = JSON.parse(message.data);
    if (events.some((event) => event.op === "list")) loadList();
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

async function loadList() {
  try {
    threads = (await call("/api/threads", undefined, "GET")).threads;
    showList();
  } catch { /* the stream says that the bot is away */ }
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

// --- sending

async function send(text, sent = []) {
  await call("/api/messages", { id: crypto.randomUUID(), thread: root, text, files: sent });
  if (!location.hash) history.replaceState(null, "", `#${root}`);
}

async function submit(event) {
  event?.preventDefault();
  const text = $("text").value.trim();
  if ((!text && !files.length) || $("send").disabled) return;
  $("send").disabled = true;
  $("fault").textContent = "";
  try {
    if (editing) await call("/api/edit", { id: editing.id, thread: root, text });
    else await send(text, files);
    $("text").value = "";
    files = [];
    editing = null;
    $("send").textContent = "Send";
    showFiles();
    grow();
  } catch (error) {
    fault(error);
  } finally {
    $("send").disabled = false;
    $("text").focus();
  }
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

function edit(message) {
  editing = message;
  $("text").value = message.text;
  $("send").textContent = "Save";
  $("text").focus();
  grow();
}

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
    el("strong", {}, command.usage), ` ${command.meaning}`,
  )));
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
    editing = null;
    $("text").value = "";
    $("send").textContent = "Send";
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
$("menu").addEventListener("click", () => {
  const shown = document.body.classList.toggle("menu");
  $("menu").setAttribute("aria-expanded", String(shown));
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); attach(event.dataTransfer.files); });
window.addEventListener("hashchange", () => open(location.hash.slice(1)));
window.addEventListener("popstate", () => { if (location.hash.slice(1) !== root) open(location.hash.slice(1)); });
setInterval(() => thread.tick(), 1000);

open(location.hash.slice(1));
loadList();
