// Uses the one-time link, whose secret is behind the # and so never in a server's log or a referrer.
"use strict";

let link = "";

function take() {
  link = location.hash.slice(1);
  history.replaceState(null, "", "/enter");
}

const word = document.getElementById("word");
const go = document.getElementById("go");

async function enter(sure) {
  go.hidden = true;
  if (!link) {
    word.textContent = document.body.dataset.why ?? "Open the link that the bot gave you.";
    return;
  }
  try {
    const answer = await fetch("/api/enter", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link, sure }),
    });
    if (answer.ok) location.replace("/");
    else if (answer.status === 403) word.textContent = (await answer.json()).error;
    else ask((await answer.json()).error, sure || answer.status === 409);
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
if (link && "asks" in document.body.dataset) ask("This link was on another page. Open it only if you asked for it.", false);
else enter(false);
