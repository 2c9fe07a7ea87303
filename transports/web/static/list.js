// The list of threads.
"use strict";

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
    later = null;
  } catch {
    setTimeout(() => { if (mine === later) loadList(); }, RETRY_MS);
  }
}

function showList() {
  const began = [...drafts].filter(([one, { text }]) => one && text && !threads.some(({ thread }) => thread === one));
  const items = [...began.map(([one, { text }]) => ({ thread: one, title: text })), ...threads].map((one) => {
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

