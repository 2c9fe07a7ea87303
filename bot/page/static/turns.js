// The turns of the running bot, step by step, from its stream of events. Text only ever becomes text.
"use strict";

const MOST = 30;
const turns = new Map();

function cell(text, label = "", tag = "td") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (label) made.dataset.label = label;
  return made;
}

function link(text, address) {
  const made = document.createElement("a");
  made.textContent = text;
  made.href = address;
  return made;
}

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
  const row = document.createElement("tr");
  const thread = cell("", "", "th");
  thread.scope = "row";
  thread.className = "words";
  thread.append(turn.name = link(turn.title || turn.thread, `/look/thread?id=${encodeURIComponent(turn.thread)}`));
  turn.name.title = turn.thread;
  const message = cell("", "Message");
  message.append(link("why", `/look/why?message=${encodeURIComponent(turn.message)}&thread=${encodeURIComponent(turn.thread)}`));
  turn.cells = ["State", "Step", "What it does", "Seconds"].map((label) => cell("", label));
  turn.cells[1].className = turn.cells[3].className = "number";
  row.append(thread, ...turn.cells, message);
  return row;
}

// A row stays the same element while its turn is shown, so that its links can be pressed, and hold the focus.
function show() {
  const shown = [...turns.values()].reverse().sort((a, b) => (a.ended ? 1 : 0) - (b.ended ? 1 : 0));
  const rows = shown.map((turn) => {
    turn.row ??= rowOf(turn);
    const seconds = Math.max(0, Math.round(((turn.ended ?? Date.now()) - turn.began) / 1000));
    if (turn.title && turn.name.textContent !== turn.title) turn.name.textContent = turn.title;
    [turn.state, turn.step, turn.doing, `${seconds}`].forEach((text, place) => {
      if (turn.cells[place].textContent !== text) turn.cells[place].textContent = text;
    });
    return turn.row;
  });
  if (!rows.length) {
    const row = document.createElement("tr");
    const empty = cell("Nothing has run since the bot started.");
    empty.colSpan = 6;
    row.append(empty);
    rows.push(row);
  }
  const body = document.getElementById("turns");
  if (rows.length !== body.children.length || rows.some((row, place) => row !== body.children[place])) body.replaceChildren(...rows);
}

let stream = null;

// As on the person's page: a tab that nobody sees needs no connection, and a browser that gave up asks again.
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
  mine.onopen = () => { document.getElementById("reconnecting").textContent = ""; };
  mine.onerror = () => {
    document.getElementById("reconnecting").textContent = "(reconnecting …)";
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => { if (mine === stream) connect(); }, 1500);
  };
}

document.addEventListener("visibilitychange", connect);
setInterval(show, 1000);
connect();
show();
