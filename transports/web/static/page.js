// The page: the open thread, its stream of events, and the buttons around it.
"use strict";

const thread = new Thread($("messages"), $("earlier"));
let root = "";
let name = ""; // of the open thread in the address, "" before its first message
let source = null;
let seen = ""; // the last event of its stream
const MOST_TRIES = 100; // loads, to find one
const MOST_NEW = 150; // messages: then only the last stay on the page
const NEAR_TOP = 400; // pixels

// The session is over. What is not sent stays in sight.
function over() {
  keep();
  if (outbox.length || [...drafts.values()].some(full)) $("link").textContent = "Your session is over. Open a new link.";
  else location.assign("/enter");
}

// What takes an element away leaves the focus in its message, or in the field.
function keepFocus(work) {
  const held = document.activeElement;
  const near = held.closest("#messages > li")?.id;
  work();
  if (held !== document.body && !held.getClientRects().length) ($(near) ?? FIELD).focus();
}

function open(wanted) {
  keep();
  name = wanted;
  draft = draftOf(name);
  root = name || crypto.randomUUID();
  if (name !== location.hash.slice(1)) history.pushState(null, "", name ? `#${name}` : "/");
  thread.clear();
  $("stop").hidden = true;
  seen = "";
  choice = "";
  connect();
  loadModels();
  showList();
  showMenu(false);
  show();
}

let models = [];
let choice = ""; // made before the first message: it goes out with it

async function loadModels() {
  const mine = root;
  const answer = await get(`/api/models?thread=${param(mine)}`).catch(() => null);
  if (!answer || mine !== root) return;
  models = answer.models;
  $("model").replaceChildren(...models.map((one) => el("option", { value: one.name, selected: one.name === answer.chosen }, about(one))));
  showEfforts(answer.effort);
}

function about({ name: model, prices, window: size }) {
  const dollars = (price) => price.toLocaleString([], { style: "currency", currency: "USD", trailingZeroDisplay: "stripIfInteger" });
  const room = size && `${size.toLocaleString([], { notation: "compact" })} tokens`;
  const price = prices.some(Boolean) ? `${prices.map(dollars).join(" / ")} a million` : prices.length && "free";
  return [model, room, price].filter(Boolean).join(" · ");
}

function showEfforts(effort) {
  const efforts = models.find((one) => one.name === $("model").value)?.efforts ?? [];
  $("model").hidden = !models.length;
  $("effort").hidden = !efforts.length;
  $("effort").replaceChildren(el("option", { value: "" }, "usual effort"), ...efforts.map((one) => el("option", { value: one, selected: one === effort }, `${one} effort`)));
}

function choose() {
  choice = `/model ${$("model").value} ${$("effort").value}`.trim();
  if (name) act(() => send(takeChoice()));
}

function takeChoice() {
  const made = choice;
  choice = "";
  return made;
}

on("model", "change", () => { showEfforts(""); choose(); });
on("effort", "change", choose);

// A browser has six connections to a page: a tab out of sight leaves its own to the others.
function connect() {
  source?.close();
  if (document.hidden && !listens) return;
  const mine = new EventSource(`/api/events?thread=${param(root)}&seen=${param(seen)}`);
  source = mine;
  mine.onopen = () => {
    $("link").textContent = "";
    reached();
  };
  mine.onmessage = (message) => {
    const events = JSON.parse(message.data);
    events.filter((event) => event.op === "list").forEach(listed);
    seen = message.lastEventId;
    keepFocus(() => {
      thread.apply(events);
      $("stop").hidden = !thread.busy;
    });
    showWaiting();
    if (!thread.busy) stopping = "";
    if (sought) seek();
    else if (thread.messages.size > thread.begun + MOST_NEW && thread.follows && !thread.busy) {
      seen = "";
      connect();
    }
  };
  mine.onerror = () => {
    if (mine !== source) return;
    $("link").textContent = "Reconnecting …";
    if (mine.readyState === EventSource.CLOSED) setTimeout(reopen, RETRY_MS, mine);
  };
}

// The browser gives up when it gets no stream, as from a proxy whose bot restarts.
async function reopen(closed) {
  if (closed !== source || (document.hidden && !listens)) return;
  const { deleted } = await get(`/api/earlier?thread=${param(root)}&before=0`).catch((error) => error); // the next try says more
  if (deleted) gone();
  else if (closed === source) connect();
}

const NAME = document.title;
let waiting = 0;

function showWaiting() {
  const here = thread.asks;
  const count = Math.max(here, threads.filter((one) => one.asks).length);
  document.title = count ? `(${count}) ${NAME}` : NAME;
  if (count > waiting && document.hidden) notify();
  waiting = count;
}

// One tab listens while nobody looks; a browser without locks has none.
let listens = false;

function notify() {
  if (!listens) return;
  const shown = new Notification(NAME, { body: "A question waits for your decision.", tag: "question", icon: "/static/icon.svg" });
  shown.onclick = () => { window.focus(); shown.close(); };
}

function listen() {
  const wanted = globalThis.Notification?.permission === "granted" && localStorage.getItem("notify") === "yes";
  $("notify").ariaPressed = wanted;
  $("notify").hidden = !globalThis.Notification || !navigator.locks;
  if (wanted && !listens) navigator.locks.request("notifications", () => new Promise(() => { listens = true; }));
}

on("notify", "click", async () => {
  const wasOn = $("notify").ariaPressed === "true";
  const granted = !wasOn && await Notification.requestPermission() === "granted";
  localStorage.setItem("notify", granted ? "yes" : "no");
  if (!wasOn && !granted) told("Your browser does not allow notifications of this page.");
  if (wasOn) listens = false;
  listen();
});

// It was deleted, here or elsewhere.
function gone() {
  const deleted = root;
  open("");
  offerUndo(deleted === deleting ? "Deleted." : "This thread was deleted.", { thread: deleted }, "deleted", false);
}

const loadEarlier = () => quietly(async () => {
  const mine = root;
  const { events } = await get(`/api/earlier?thread=${mine}&before=${thread.earlier}`);
  if (mine === root) keepFocus(() => thread.prepend(events));
}, $("earlier"));

let lastTop = 0;
on("log", "scroll", () => {
  const { scrollTop } = $("log");
  if (scrollTop < Math.min(lastTop, NEAR_TOP) && thread.earlier) loadEarlier();
  lastTop = scrollTop;
});

async function seek() {
  const mine = sought;
  for (let tries = 0; sought === mine && tries < MOST_TRIES; tries += 1) {
    const found = thread.messages.get(sought)?.element;
    if (found || !thread.earlier) {
      sought = "";
      found?.scrollIntoView();
      found?.focus({ preventScroll: true });
      return;
    }
    await loadEarlier();
  }
}

const KEYS = {
  "?": () => $("shortcuts").showModal(),
  n: () => open(""),
  "/": () => FIELD.focus(),
  t: changeTheme,
};

on(document, "keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && !event.defaultPrevented && thread.busy && !$("shortcuts").open) act(() => send("/stop"));
  if (event.target.matches("input, textarea, select, dialog *") || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key]();
});

function changeTheme() {
  const { dataset } = document.documentElement;
  dataset.theme = { "": "light", light: "dark", dark: "" }[dataset.theme];
  localStorage.setItem("theme", dataset.theme);
  told(dataset.theme ? `The page is ${dataset.theme}.` : "The page is as your system is.");
}

on("theme", "click", changeTheme);
on("keys", "click", KEYS["?"]);
on("ideas", "click", (event) => {
  if (event.target.localName !== "button") return;
  FIELD.value = event.target.textContent;
  grow();
  FIELD.focus();
});

on("stop", "click", () => act(() => send("/stop")));
on("new", "click", () => open(""));
on("leave", "click", () => act(async () => {
  await call("/api/leave", {});
  drafts.clear();
  outbox.length = 0;
  location.assign("/enter");
}));
on("menu", "click", (event) => {
  event.stopPropagation();
  showMenu(!BODY.contains("menu"));
});
on("threads", "keydown", (event) => {
  if (event.key !== "Escape" || !BODY.contains("menu")) return;
  showMenu(false);
  $("menu").focus();
});
on("list", "click", (event) => { if (event.target.closest("a")) showMenu(false); });
on(document.querySelector("main"), "click", () => showMenu(false));
on("earlier", "click", loadEarlier);
on(document, "visibilitychange", () => {
  store();
  if (!listens) connect();
});
on(window, "pagehide", store);
on(window, "popstate", () => { if (location.hash.slice(1) !== name) open(location.hash.slice(1)); });
// The address names the thread, and no place on the page.
on(document.querySelector(".skip"), "click", (event) => { event.preventDefault(); FIELD.focus(); });
setInterval(() => thread.tick(), 1000);

// Until here, Enter would have begun a new line.
FIELD.readOnly = false;
restore();
listen();
open(location.hash.slice(1));
