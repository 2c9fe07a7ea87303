// Chat SDK's own core, run by node in the folder where it is installed: `Chat`, its memory state, an adapter in memory.
// It has no agent: the handler subscribes, reads the thread's history from the state, asks the model and posts.
// The task and the lines printed are those of harness.py.

import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";

let fsyncs = 0;
const counting = (owner, name) => {
  const original = owner[name];
  owner[name] = function (...given) {
    fsyncs += 1;
    return original.apply(this, given);
  };
};
for (const name of ["fsync", "fsyncSync", "fdatasync", "fdatasyncSync"]) counting(fs, name);
const file = await fs.promises.open(process.execPath);
for (const name of ["sync", "datasync"]) counting(Object.getPrototypeOf(file), name);
await file.close();
syncBuiltinESMExports();

const { Chat, Message, parseMarkdown, stringifyMarkdown, toAiMessages } = await import("chat");
const { createMemoryState } = await import("@chat-adapter/state-memory");

const task = JSON.parse(process.argv[2]);
const { version } = JSON.parse(fs.readFileSync(new URL("node_modules/chat/package.json", import.meta.url), "utf8"));
const ANSWER = "All right, that is done.";
const WARM_UP = 10;

const say = (event, fields = {}) => fs.writeSync(1, JSON.stringify({ event, ...fields }) + "\n");
const messageId = (thread, n) => `q-${thread}-${n}-q`;

let calls = 0;
const complete = async (messages) => {
  if (task.step === "accept") await sleep(500 + ++calls * 200);
  if (!task.model_url) return ANSWER;
  const response = await fetch(`${task.model_url}/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "instant", messages }),
  });
  return (await response.json()).choices[0].message.content;
};

const adapter = {
  name: "room",
  userName: "bot",
  persistThreadHistory: true,
  posts: 0,
  initialize: async () => {},
  channelIdFromThreadId: (id) => id.split(":").slice(0, 2).join(":"),
  encodeThreadId: (id) => id,
  decodeThreadId: (id) => id,
  renderFormatted: (content) => stringifyMarkdown(content),
  startTyping: async () => {},
  fetchMessages: async () => ({ messages: [] }),
  fetchThread: async (id) => ({ id, channelId: id, metadata: {} }),
  postMessage: async (threadId, raw) => ({ id: `p-${++adapter.posts}`, threadId, raw }),
};

const chat = new Chat({ userName: "bot", adapters: { room: adapter }, state: createMemoryState(), logger: "silent" });
await chat.initialize();

const answer = async (thread, message) => {
  const { messages } = await chat.history.thread.list(thread.id, { limit: 100 });
  await thread.post(await complete(await toAiMessages(messages)));
  if (task.step !== "converse") say("answered", { id: message.id });
};
chat.onNewMention(async (thread, message) => {
  await thread.subscribe();
  await answer(thread, message);
});
chat.onSubscribedMessage(answer);

const receive = (thread, n) => {
  const text = `please have a look at the build ${messageId(thread, n)}`;
  const threadId = `room:C${thread}:1700000000.${thread}`;
  const message = new Message({
    id: messageId(thread, n),
    threadId,
    text,
    formatted: parseMarkdown(text),
    raw: {},
    author: { userId: `U${thread}`, userName: "ann", fullName: "Ann", isBot: false, isMe: false },
    metadata: { dateSent: new Date(), edited: false },
    attachments: [],
    isMention: n === 0,
  });
  return chat.processMessage(adapter, threadId, message);
};

const converse = (first, threads, messages) =>
  Promise.all(
    Array.from({ length: threads }, async (_, index) => {
      for (let n = 0; n < messages; n += 1) await receive(first + index, n);
    }),
  );

if (task.step === "converse") {
  await converse(task.threads, WARM_UP, 1);
  const [posts, before, cpu, start] = [adapter.posts, fsyncs, process.cpuUsage(), performance.now()];
  await converse(0, task.threads, task.messages);
  const [wall, used] = [(performance.now() - start) / 1000, process.cpuUsage(cpu)];
  if (adapter.posts - posts !== task.threads * task.messages) throw new Error("not every message was answered");
  const measured = { version, wall, cpu: (used.user + used.system) / 1e6, rss: process.memoryUsage().rss };
  say("measured", { ...measured, fsyncs: fsyncs - before });
} else {
  if (task.step === "accept") {
    for (let thread = 0; thread < task.threads; thread += 1) {
      receive(thread, 0); // its webhook returns 200 here, and leaves the rest to the background
      say("accepted", { id: messageId(thread, 0) });
    }
  }
  say("started");
  setInterval(() => {}, 60_000);
}
