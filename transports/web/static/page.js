// The page: the open thread, its stream of events, and the buttons around it.
"use strict";

const thread = new Thread($("messages"), $("earlier"), { press, edit, remove, judge, told, dropped });
let root = "";
let name = ""; // of the open thread in the address, "" before its first message
let source = null;
let seen = ""; // the last event of its stream
const MOST_TRIES = 100; // times that earlier messages are loaded to find one

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
  if (held !== document.body && !held.getClientRects().length) ($(near) ?? $("text")).focus();
}

// --- the open thread

function open(wanted) {
  keep();
  name = wanted;
  draft = draftOf(name);
  root = name || crypto.randomUUID();
  if (name !== location.hash.slice(1)) history.pushState(null, "", name ? `#${name}` : "/");
  thread.clear();
  $("stop").hidden = true;
  seen = "";
  connect();
  showList();
  showMenu(false);
  show();
}

// A browser has six connections to a page: a tab that nobody sees leaves its own to the others.
function connect() {
  source?.close();
  if (document.hidden) return;
  const mine = new EventSource(`/api/events?thread=${encodeURIComponent(root)}&seen=${encodeURIComponent(seen)}`);
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
      thread.apply(events.filter((event) => event.op !== "list"));
      $("stop").hidden = !thread.busy;
    });
    if (!thread.busy) stopping = "";
    if (sought) seek();
  };
  mine.onerror = () => {
    if (mine !== source) return;
    $("link").textContent = "Reconnecting …";
    if (mine.readyState === EventSource.CLOSED) setTimeout(reopen, RETRY_MS, mine);
  };
}

// The browser gives up for good when it gets no stream, as from a proxy whose bot restarts, or when the session is over.
async function reopen(closed) {
  if (closed !== source || document.hidden) return;
  try {
    const answer = await fetch(`/api/earlier?thread=${encodeURIComponent(root)}&before=0`);
    if (answer.status === 401) over();
    if (answer.status === 404 && (await answer.json()).deleted) return gone();
  } catch { /* the next try says more */ }
  if (closed === source) connect();
}

// It was deleted, here, in another tab, or before it was opened.
function gone() {
  const deleted = root;
  open("");
  offerUndo(deleted === deleting ? "Deleted." : "This thread was deleted.", { thread: deleted }, "deleted", false);
}

// --- what was said before

const loadEarlier = () => quietly(async () => {
  const mine = root;
  const { events } = await call(`/api/earlier?thread=${mine}&before=${thread.earlier}`, undefined, "GET");
  if (mine === root) keepFocus(() => thread.prepend(events));
}, $("earlier"));

// It comes by itself as one scrolls up to it.
let near = false;
let top_ = 0;
new IntersectionObserver(([seen]) => { near = seen.isIntersecting; }, { root: $("log"), rootMargin: "400px 0px" }).observe($("earlier"));
$("log").addEventListener("scroll", () => {
  const isUp = $("log").scrollTop < top_;
  top_ = $("log").scrollTop;
  if (isUp && near && thread.earlier) loadEarlier();
});

// Goes to the message that a search found.
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

// --- keys and buttons

$("stop").addEventListener("click", () => act(() => send("/stop")));
$("new").addEventListener("click", () => open(""));
$("leave").addEventListener("click", () => act(async () => {
  await call("/api/leave", {});
  drafts.clear();
  outbox.length = 0;
  location.assign("/enter");
}));
$("menu").addEventListener("click", () => showMenu(!document.body.classList.contains("menu")));
$("threads").addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !document.body.classList.contains("menu")) return;
  showMenu(false);
  $("menu").focus();
});
$("list").addEventListener("click", (event) => { if (event.target.closest("a")) showMenu(false); });
document.querySelector("main").addEventListener("click", () => showMenu(false));
$("earlier").addEventListener("click", loadEarlier);
document.addEventListener("visibilitychange", () => {
  store();
  connect();
});
window.addEventListener("pagehide", store);
window.addEventListener("popstate", () => { if (location.hash.slice(1) !== name) open(location.hash.slice(1)); });
// The address names the thread, and no place on the page.
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("text").focus(); });
setInterval(() => thread.tick(), 1000);

// Until here, Enter would have begun a new line.
$("text").readOnly = false;
restore();
open(location.hash.slice(1));
