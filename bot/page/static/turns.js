// The turns of the running bot, step by step, from its stream of events. Text only ever becomes text.
"use strict";

const MOST = 30;
const turns = new Map();

function cell(text, tag = "td") {
  const made = document.createElement(tag);
  made.textContent = text;
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

function show() {
  const rows = [...turns.values()].reverse().sort((a, b) => (a.ended ? 1 : 0) - (b.ended ? 1 : 0)).map((turn) => {
    const row = document.createElement("tr");
    const thread = cell("", "th");
    thread.scope = "row";
    thread.className = "name";
    thread.append(link(turn.thread, `/look/thread?id=${encodeURIComponent(turn.thread)}`));
    const message = cell("");
    message.append(link("why", `/look/why?message=${encodeURIComponent(turn.message)}&thread=${encodeURIComponent(turn.thread)}`));
    const seconds = cell(Math.max(0, Math.round(((turn.ended ?? Date.now()) - turn.began) / 1000)));
    seconds.className = "number";
    row.append(thread, cell(turn.state), cell(turn.step), cell(turn.doing), seconds, message);
    return row;
  });
  if (!rows.length) {
    const row = document.createElement("tr");
    const empty = cell("Nothing has run since the bot started.");
    empty.colSpan = 6;
    row.append(empty);
    rows.push(row);
  }
  document.getElementById("turns").replaceChildren(...rows);
}

const stream = new EventSource("/look/events");
stream.onmessage = (message) => {
  const event = JSON.parse(message.data);
  if (event.thread_id && APPLY[event.kind]) APPLY[event.kind](turnOf(event), event);
  show();
};
stream.onopen = () => { document.getElementById("live").textContent = ""; };
stream.onerror = () => { document.getElementById("live").textContent = "(reconnecting …)"; };
setInterval(show, 1000);
show();
