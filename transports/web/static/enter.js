// Uses the one-time link, whose secret is behind the # and so never in a server's log or a referrer.
"use strict";

const link = location.hash.slice(1);
history.replaceState(null, "", "/enter");

const word = document.getElementById("word");
const go = document.getElementById("go");

async function enter(sure) {
  go.hidden = true;
  if (!link) {
    word.textContent = "Open the link that the bot gave you.";
    return;
  }
  try {
    const answer = await fetch("/api/enter", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link, sure }),
    });
    if (answer.ok) location.replace("/");
    else if (answer.status === 409) ask((await answer.json()).error, true);
    else word.textContent = (await answer.json()).error;
  } catch {
    word.textContent = "The bot cannot be reached. Try again in a moment.";
  }
}

function ask(why, sure) {
  word.textContent = why;
  go.hidden = false;
  go.onclick = () => enter(sure);
}

if (link && "asks" in document.body.dataset) ask("This link was on another page. Open it only if you asked for it.", false);
else enter(false);
