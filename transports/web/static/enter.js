// Uses the one-time link, whose secret is behind the # and so never in a server's log or a referrer.
"use strict";

const link = location.hash.slice(1);
history.replaceState(null, "", "/enter");

async function enter() {
  const word = document.getElementById("word");
  if (!link) {
    word.textContent = "Open the link that the bot gave you.";
    return;
  }
  try {
    const answer = await fetch("/api/enter", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ link }),
    });
    if (answer.ok) location.replace("/");
    else word.textContent = (await answer.json()).error;
  } catch {
    word.textContent = "The bot cannot be reached. Try again in a moment.";
  }
}

enter();
