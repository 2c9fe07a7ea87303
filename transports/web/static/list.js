// The list of threads: groups, search, the archive, and what a person says of a thread.
"use strict";

const threads = []; // those out of the archive; ``before`` is where the list goes on
let later = null; // changes that arrive while the list is on its way, and may be newer than it
let other = null; // in place of the list: the archive, or what a search found
let asked = null; // the last question for that
let sought = ""; // the message that is looked for in the thread to be opened
let renamed = ""; // the thread whose title is in a field
let deleting = ""; // the thread that is deleted from here

const UNDO_MS = 15_000;
const SAID = { title: ["Renamed."], pinned: ["Not pinned.", "Pinned."], archived: ["Back in the list.", "Archived."], deleted: ["Taken back.", "Deleted."] };

const row = (one) => $("list").querySelector(`[data-thread="${one}"]`);
const has = (list, wanted) => list.some(({ thread: one }) => one === wanted);

function listed(event) {
  const isNews = "busy" in event;
  if (event.deleted && event.thread === root) gone();
  if (event.deleted) drafts.delete(event.thread);
  if (other?.archived && !isNews) loadArchive();
  later?.push(event);
  // Only the bot knows the first words of a thread, and those that come back.
  const isHere = isNews || event.deleted || event.archived || (has(threads, event.thread) && event.title !== "");
  if (!event.thread || !isHere) return loadList();
  place(event);
  showList();
}

function place(event) {
  const isNews = "busy" in event;
  const at = threads.findIndex((one) => one.thread === event.thread);
  const [known] = at < 0 ? [] : threads.splice(at, 1);
  const one = { ...known, ...event, title: isNews ? known?.title || event.title : event.title || known?.title };
  if (isNews) one.at = Date.now() / 1000;
  if (!one.archived && !one.deleted) threads.push(one);
}

async function loadList() {
  const mine = later = [];
  try {
    const answer = await get("/api/threads");
    if (mine !== later) return; // it was asked for again
    threads.splice(0, Infinity, ...answer.threads);
    threads.before = answer.before;
    mine.forEach(place);
    later = null;
    showList();
  } catch {
    setTimeout(() => { if (mine === later) loadList(); }, RETRY_MS);
  }
}

const loadMore = (more) => quietly(async () => {
  const list = other ?? threads, { before } = list;
  const answer = await get(`/api/threads?archived=${Number(list === other)}&before=${param(before)}`);
  if (before !== list.before) return;
  list.push(...answer.threads.filter((one) => !has(list, one.thread)));
  list.before = answer.before;
  showList();
}, more);

const watcher = whenInSight(loadMore);

const dayOf = (time) => new Date(time).setHours(0, 0, 0, 0);

function group({ pinned, at }) {
  if (other?.words) return "Threads";
  if (pinned) return "Pinned";
  const days = at ? Math.round((dayOf(Date.now()) - dayOf(at * 1000)) / 86_400_000) : 0;
  return days < 1 ? "Today" : days < 2 ? "Yesterday" : days < 8 ? "Previous 7 days" : new Date(at * 1000).toLocaleDateString([], { month: "long", year: "numeric" });
}

function inOrder(a, b) {
  return Boolean(b.pinned) - Boolean(a.pinned) || (b.at ?? Infinity) - (a.at ?? Infinity) || 0;
}

function showList() {
  $("title").textContent = [...threads, ...other ?? []].find((one) => one.thread === root)?.title || "New thread";
  if (renamed) return; // when that is over
  const began = [...drafts].filter(([one, { text }]) => one && text && !has(threads, one));
  const all = other ?? [...began.map(([one, { text }]) => ({ thread: one, title: text })), ...threads];
  const groups = new Map();
  for (const one of other?.words ? all : [...all].sort(inOrder)) groups.set(group(one), [...groups.get(group(one)) ?? [], item(one)]);
  const { localName: kind } = document.activeElement;
  const held = document.activeElement.closest("#list li")?.dataset.thread;
  $("list").replaceChildren(...[...groups].flatMap(([words, items]) => [el("p.group", words), el("ul", { "aria-label": words }, ...items)]));
  watcher.disconnect();
  if ((other ?? threads).before) {
    const more = button(() => loadMore(more), "More threads");
    $("list").append(more);
    watcher.observe(more);
  }
  if (held) (row(held)?.querySelector(kind) ?? $("search")).focus();
}

function item(one) {
  const words = one.title || "(no words yet)";
  const state = one.asks ? "asks" : one.busy ? "busy" : "";
  const link = el(
    "a", { href: `#${one.thread}`, "aria-current": one.thread === root ? "page" : null, click: () => go(one) },
    el("span.words", { dir: "auto" }, words), one.text ? el("span.line", { dir: "auto" }, ...marked(one.text)) : null,
  );
  const spoken = state ? el("span.visually-hidden", one.asks ? " (asks you)" : " (working)") : null;
  const more = iconButton("ellipsis", `More about ${words}`, () => showActions(one, more));
  more.classList.add("more");
  return el("li", { class: state, "data-thread": one.thread }, link, spoken, more);
}

function marked(text) {
  const words = other.words.map((word) => word.replace(/[^\p{L}\p{N}]/gu, "\\$&")).join("|");
  return text.split(new RegExp(`(${words})`, "i")).map((part, place) => place % 2 ? el("mark", part) : part);
}

function go(one) {
  sought = one.message ?? "";
  if (one.thread === root) seek();
}

function showActions(one, opener) {
  const file = (form) => () => el("a", { href: `/api/export?thread=${one.thread}&form=${form}`, download: "" }).click();
  const turn = (mark, on, off) => [one[mark] ? off : on, () => say(one, mark, !one[mark])];
  const actions = [
    ["pencil", "Rename", () => rename(one)], ["pin", ...turn("pinned", "Pin", "Unpin")],
    ["archive", ...turn("archived", "Archive", "Take out of the archive")],
    ["download", "Save as Markdown", file("md")], ["download", "Save as a web page", file("html")],
    ...navigator.canShare?.({ files: [page("")] }) ? [["share-2", "Share", () => share(one)]] : [],
    ["trash-2", "Delete", () => say(one, "deleted", true)],
  ];
  const menu = $("actions");
  menu.replaceChildren(...actions.map(([name, words, work]) => button(() => { menu.hidePopover(); work(); }, icon(name), words)));
  menu.showPopover();
  const { left, bottom } = opener.getBoundingClientRect();
  const within = (wanted, most) => `${Math.max(8, Math.min(wanted, most - 8))}px`;
  menu.style.left = within(left, innerWidth - menu.offsetWidth);
  menu.style.top = within(bottom, innerHeight - menu.offsetHeight);
  menu.firstChild.focus();
}

const say = ({ thread: to, title }, mark, value) => act(async () => {
  if (mark === "deleted") deleting = to;
  await call("/api/threads", { thread: to, [mark]: value });
  const back = mark === "title" ? title : !value;
  offerUndo(SAID[mark].at(value === true), { thread: to, title: value }, mark, back);
  if (other?.words) search();
});

function offerUndo(words, ...change) {
  const undo = button(() => say(...change), "Undo");
  const line = $(BODY.contains("menu") ? "found" : "told"); // what is in sight on a phone
  line.replaceChildren(words, " ", undo);
  setTimeout(() => { if (undo.isConnected) line.textContent = ""; }, UNDO_MS);
}

function rename(one) {
  renamed = one.thread;
  const close = (isChanged) => {
    if (!renamed) return;
    renamed = "";
    showList();
    row(one.thread)?.querySelector("a").focus();
    if (isChanged) say(one, "title", field.value);
  };
  const field = el("input.name", { value: one.title, maxlength: "200", "aria-label": "Title", blur: () => close(), keydown: (event) => {
    if (!["Enter", "Escape"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    close(event.key === "Enter" && field.value.trim() !== one.title);
  } });
  row(one.thread).replaceChildren(field);
  field.select();
}

const page = (content) => new File([content], "thread.html", { type: "text/html" });

const share = ({ thread: one, title }) => act(async () => {
  const answer = await fetch(`/api/export?thread=${one}&form=html`);
  if (!answer.ok) throw new Error((await answer.json()).error);
  await navigator.share({ files: [page(await answer.blob())], title }).catch(() => {}); // it was put away
});

const showInstead = (query, kind) => quietly(async () => {
  const mine = asked = {};
  const answer = query && await get(`/api/threads?${query}`);
  if (mine !== asked) return;
  other = answer ? Object.assign(answer.threads, { before: answer.before, ...kind }) : null;
  $("archive").ariaPressed = Boolean(other?.archived);
  const left = answer?.left_out ? ` Not searched: ${answer.left_out.toLocaleString()}, older.` : "";
  $("found").textContent = other ? `${other.words ? "Found" : "In the archive"}: ${other.length}.${left}` : "";
  showList();
});

function search() {
  const text = $("search").value.trim();
  return showInstead(text && `search=${param(text)}`, { words: text.split(/\s+/) });
}

const loadArchive = () => showInstead("archived=1", { archived: true });

on("search", "input", () => {
  const { value } = $("search");
  setTimeout(() => { if ($("search").value === value) search(); }, 250);
});
on("search", "keydown", (event) => { if (event.key === "Escape" && $("search").value) event.stopPropagation(); });
on("archive", "click", () => {
  $("search").value = "";
  if (other?.archived) search();
  else loadArchive();
});
on("actions", "keydown", (event) => event.stopPropagation()); // Escape closes nothing else

// On a phone the list lies over the thread.
function showMenu(shown) {
  BODY.toggle("menu", shown);
  $("menu").ariaExpanded = shown;
}
