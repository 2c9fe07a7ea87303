// What the page asks of the bot, and what it says when that fails.
"use strict";

const $ = (id) => document.getElementById(id);
const on = (target, event, work) => ($(target) ?? target).addEventListener(event, work);
const FIELD = $("text");
const BODY = document.body.classList;
const param = encodeURIComponent;
const meta = (name) => document.querySelector(`meta[name=${name}]`).content;
const TOKEN = meta("token");
const MOST_BYTES = Number(meta("most-bytes"));
const RETRY_MS = 1500;
const COMMANDS = [...$("commands").options].map(({ value: usage, text }) => ({ usage, text, word: usage.split(" ")[0] }));

const call = (path, body) => ask(path, { body: JSON.stringify(body), type: "application/json" });
const get = (path) => ask(path, { method: "GET" });

// Returns the answer. ``progress`` gets the part of the body that has gone, from 0 to 1.
function ask(path, { method = "POST", body, type, progress }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(method, path);
    request.setRequestHeader("X-Threadfast-Token", TOKEN);
    if (type) request.setRequestHeader("Content-Type", type);
    request.responseType = "json";
    if (progress) request.upload.onprogress = (event) => progress(event.loaded / (event.total || 1));
    request.onerror = () => reject(new TypeError("no answer"));
    request.onload = () => {
      const { status, response } = request;
      reached();
      if (status < 300 && response) return resolve(response);
      if (status === 401) over();
      reject(Object.assign(new Error(response?.error || "The bot did not take this. Try again."), { status, ...response }));
    };
    request.send(body);
  });
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
async function act(work, button = el("b"), isPress = true) {
  if (button.ariaDisabled) return;
  button.ariaDisabled = true;
  if (isPress) quiet();
  const isDone = await work().then(() => true, fault);
  if (!isDone || !isPress) button.ariaDisabled = null; // the bot answers a press
}

// What nobody pressed a button for leaves what the page has said.
const quietly = (work, button) => act(work, button, false);
