// Uses the one-time link, whose secret is behind the # and so never in a server's log or a referrer.
"use strict";

let link = "";

function take() {
  link = location.hash.slice(1);
  history.replaceState(null, "", "/enter");
}

const word = document.getElementById("word");
const go = document.getElementById("go");
const { why = "Open the link that the bot gave you.", asks } = document.body.dataset;

async function enter(sure) {
  go.hidden = true;
  if (!link) {
    word.textContent = why;
    return;
  }
  try {
    const headers = { "Content-Type": "application/json" };
    const answer = await fetch("/api/enter", { method: "POST", headers, body: JSON.stringify({ link, sure }) });
    if (answer.ok) return location.replace("/");
    const { error } = await answer.json();
    if (answer.status === 403) word.textContent = error;
    else ask(error, sure || answer.status === 409);
  } catch {
    ask("The bot cannot be reached. Try again in a moment.", sure);
  }
}

function ask(why, sure) {
  word.textContent = why;
  go.hidden = false;
  go.onclick = () => enter(sure);
}

take();
// Another link in the same tab: who put it there is not known.
window.addEventListener("hashchange", () => {
  take();
  ask("This is another link. Open it only if you asked for it.", false);
});
if (link && asks != null) ask("This link was on another page. Open it only if you asked for it.", false);
else enter(false);
