// What the page asks of the bot, and what it says when that fails.
"use strict";

const $ = (id) => document.getElementById(id);
const on = (id, event, work) => $(id).addEventListener(event, work);
const param = encodeURIComponent;
const meta = (name) => document.querySelector(`meta[name=${name}]`).content;
const TOKEN = meta("token");
const MOST_BYTES = Number(meta("most-bytes"));
const RETRY_MS = 1500;
const COMMANDS = [...$("commands").options].map((option) => ({ usage: option.value, meaning: option.textContent }));

async function call(path, body, method = "POST") {
  const json = { "Content-Type": "application/json" };
  return ask(path, { method, headers: json, body: body === undefined ? undefined : JSON.stringify(body) });
}

// Sends a file, and tells how much of it has gone, from 0 to 1.
function upload(file, progress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/api/files?name=${param(file.name)}`);
    request.setRequestHeader("X-Threadfast-Token", TOKEN);
    request.responseType = "json";
    request.upload.onprogress = (event) => progress(event.loaded / (event.total || 1));
    request.onerror = () => reject(new TypeError("no answer"));
    request.onload = () => {
      if (request.status === 200 && request.response) resolve(request.response);
      else if (request.status === 401) over();
      reject(new Error(request.response?.error || "The bot did not take this. Try again."));
    };
    request.send(file);
  });
}

async function ask(path, options) {
  const answer = await fetch(path, { ...options, headers: { ...options.headers, "X-Threadfast-Token": TOKEN } });
  const value = await answer.json().catch(() => null);
  reached();
  if (answer.ok && value) return value;
  if (answer.status === 401) over();
  throw Object.assign(new Error(value?.error || "The bot did not take this. Try again."), { status: answer.status });
}

function fault(error) {
  unreached = error instanceof TypeError;
  $("fault").textContent = unreached ? "The bot cannot be reached. Your text is still here." : error.message;
}

let unreached = false; // as the fault in sight says

function reached() {
  if (unreached) $("fault").textContent = "";
  unreached = false;
}

function told(text) {
  $("told").textContent = text;
  heard();
}

let heard = () => {};

// Returns once the bot has said something to a press, or after some seconds.
function hear() { return new Promise((done) => { heard = done; setTimeout(done, 3000); }); }

function quiet() {
  $("fault").textContent = "";
  told("");
}

// A button that is disabled would lose the focus.
async function act(work, button) {
  if (button?.hasAttribute("aria-disabled")) return;
  button?.setAttribute("aria-disabled", "true");
  try {
    quiet();
    await work();
  } catch (error) {
    button?.removeAttribute("aria-disabled");
    fault(error);
  }
}
