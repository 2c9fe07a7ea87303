// The turns of the running bot, step by step, from its stream of events.
"use strict";

const MOST = 30;
const link = document.getElementById("reconnecting");
const turns = new Map();
const NOTHING = el("tr", el("td", { colspan: "6" }, "Nothing has run since the bot started."));

function turnOf(event) {
  const key = event.correlation_id || `${event.thread_id} ${event.message_id}`;
  if (!turns.has(key)) {
    turns.set(key, { thread: event.thread_id, message: event.message_id, state: "running", step: "", doing: "", began: Date.parse(event.at), ended: null });
    if (turns.size > MOST) turns.delete([...turns].find(([, turn]) => turn.ended)?.[0] ?? turns.keys().next().value);
  }
  return turns.get(key);
}

const APPLY = {
  turn(turn, event) {
    if (event.state === "began") return;
    turn.state = event.outcome === "ok" ? "ended" : event.outcome;
    turn.ended = Date.parse(event.at);
    turn.doing = "";
  },
  step(turn, event) {
    turn.step = `${event.step}`;
    turn.doing = event.state === "began" ? `asks ${event.model}` : "";
  },
  tool(turn, event) { turn.doing = event.state === "began" ? `runs ${event.tool}` : ""; },
  retry(turn, event) { turn.doing = `tries again in ${event.wait_s} s (${event.code || event.event})`; },
  failover(turn, event) { turn.doing = `goes on with ${event.model}`; },
  budget(turn, event) { if (event.state === "paused") turn.doing = "asks about money"; },
  settled(turn, event) { turn.state = event.outcome; turn.ended ??= Date.parse(event.at); },
};

function rowOf(turn) {
  const thread = encodeURIComponent(turn.thread);
  turn.name = el("a", { href: `/look/thread?id=${thread}`, title: turn.thread }, turn.title || turn.thread);
  turn.cells = ["State", "Step", "What it does", "Seconds"].map((label, place) =>
    el("td", { "data-label": label, class: place % 2 ? "number" : "" }));
  const why = el("a", { href: `/look/why?message=${encodeURIComponent(turn.message)}&thread=${thread}` }, "why");
  return el("tr", el("th", { scope: "row", class: "words" }, turn.name), ...turn.cells, el("td", { "data-label": "Message" }, why));
}

function write(element, text) { if (element.textContent !== text) element.textContent = text; }

// A row stays the same element while its turn is shown, so that its links can be pressed, and hold the focus.
function show() {
  const shown = [...turns.values()].reverse().sort((a, b) => (a.ended ? 1 : 0) - (b.ended ? 1 : 0));
  const rows = shown.map((turn) => {
    turn.row ??= rowOf(turn);
    const seconds = Math.max(0, Math.round(((turn.ended ?? Date.now()) - turn.began) / 1000));
    if (turn.title) write(turn.name, turn.title);
    [turn.state, turn.step, turn.doing, `${seconds}`].forEach((text, place) => write(turn.cells[place], text));
    return turn.row;
  });
  if (!rows.length) rows.push(NOTHING);
  const body = document.getElementById("turns");
  if (rows.length !== body.children.length || rows.some((row, place) => row !== body.children[place])) body.replaceChildren(...rows);
}

let stream = null;

// As on the person's page: a tab out of sight has no connection, and a browser that gave up asks again.
function connect() {
  stream?.close();
  if (document.hidden) return;
  turns.clear();
  const mine = new EventSource("/look/events");
  stream = mine;
  mine.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (event.kind === "gap") turns.clear(); // of another process, or too long ago
    if (event.thread_id && APPLY[event.kind]) {
      const turn = turnOf(event);
      APPLY[event.kind](turn, event);
      if (event.title) turn.title = event.title;
    }
    show();
  };
  mine.onopen = () => { link.textContent = ""; };
  mine.onerror = () => {
    link.textContent = "(reconnecting …)";
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === stream) connect(); }, 1500);
  };
}

document.addEventListener("visibilitychange", connect);
setInterval(show, 1000);
connect();
show();
