// What the person writes: drafts, sending, files and commands.
"use strict";

// By the name of its thread; ``edited`` is a message whose text is in the field instead.
const drafts = new Map();
let draft = draftOf("");

function draftOf(one, all = drafts) {
  if (!all.has(one)) all.set(one, { text: "", files: [], edited: null });
  return all.get(one);
}

// A tab that is loaded again has it too, but not once its person has signed out.
const STORED = `unsent ${meta("person")}`;

function store() {
  keep();
  const ready = (files) => files.filter((file) => file.id).map(({ id, name: taken }) => ({ id, name: taken }));
  const all = new Map([...drafts].map(([one, { text, files, edited }]) => [one, { text, files: ready(files), edited }]));
  [...outbox].reverse().forEach((item) => giveBack({ ...item, files: ready(item.files) }, false, all));
  sessionStorage.setItem(STORED, JSON.stringify([[...all].filter(([, one]) => full(one)), [...unsure]]));
}

function restore() {
  const [all, ids] = JSON.parse(sessionStorage.getItem(STORED) ?? "[[],[]]");
  for (const [one, { text, files, edited }] of all) {
    drafts.set(one, { text, edited, files: files.map((file) => ({ ...file, taken: Promise.resolve(file) })) });
  }
  ids.forEach(([same, id]) => unsure.set(same, id));
}

function full({ text, files, edited }) { return text.trim() || files.length || edited; }

// The person changes the field, so it is read before anything else happens to the draft.
function keep() { (draft.edited ?? draft).text = FIELD.value; }

function show() {
  FIELD.value = (draft.edited ?? draft).text;
  $("send").ariaLabel = draft.edited ? "Save" : "Send";
  $("cancel").hidden = $("editing").hidden = !draft.edited;
  showFiles();
  showCompletions();
  grow();
  FIELD.focus();
}

// What was sent without an answer keeps its id: a second press of Send is no second message.
const unsure = new Map();

async function sendOnce(path, body) {
  const same = JSON.stringify([path, body]);
  const id = unsure.get(same) ?? crypto.randomUUID();
  unsure.set(same, id);
  await call(path, { id, ...body });
  unsure.delete(same);
  return id;
}

async function send(text, files = [], to = root) {
  const sent = await Promise.all(files.map((file) => file.taken));
  if (STOP.test(text)) stopping = to;
  return sendOnce("/api/messages", { thread: to, text, files: sent });
}

// A stop from here gives back what waited in this thread; what was sent from here has its files.
const STOP = /^\s*[/!]?stop\s*$/i;
let stopping = "";
const sentItems = new Map();
const MOST_SENT = 100;

function dropped(message) {
  if (stopping !== root || thread.isReplay) return;
  keep();
  giveBack(sentItems.get(message.id) ?? { thread: root, text: message.text ?? "", files: [] }, false);
  show();
}

// One after the other. The field is free at once.
const outbox = [];

function submit(event) {
  event?.preventDefault();
  keep();
  const { edited } = draft;
  const item = { thread: root, ...edited, text: (edited ?? draft).text.trim(), files: edited ? [] : draft.files };
  if (!item.text && !item.files.length) return;
  quiet();
  if (!name) { // the thread has one from its first message on
    name = root;
    drafts.set(name, draft);
    drafts.delete("");
    history.replaceState(null, "", `#${name}`);
  }
  Object.assign(draft, edited ? { edited: null } : { text: "", files: [] });
  show();
  thread.toEnd();
  if (outbox.push(item) === 1) deliver();
}

async function deliver() {
  try {
    for (; outbox.length; outbox.shift()) {
      const { thread: to, id, isOver, text, files } = outbox[0];
      if (choice && to === root) await Promise.all([hear(), send(takeChoice(), [], to)]);
      if (isOver) await sendOnce("/api/again", { thread: to, message: id, text });
      else if (id) await call("/api/edit", { id, thread: to, text });
      else sentItems.set(await send(text, files, to), outbox[0]);
      if (sentItems.size > MOST_SENT) sentItems.delete(sentItems.keys().next().value);
    }
  } catch (error) {
    keep();
    outbox.splice(0).reverse().forEach((item) => giveBack(item, error.status === 409));
    show();
    showList();
    fault(error);
  }
}

// What was not taken is in the field of its thread again. An edit that came too late is a message to be.
function giveBack(item, late, all = drafts) {
  const to = draftOf(item.thread, all);
  if (item.id && (!late || item.isOver) && !to.edited) {
    to.edited = { id: item.id, isOver: item.isOver, text: item.text };
    return;
  }
  to.text = [item.text, to.text].filter(Boolean).join("\n");
  to.files = [...item.files.filter((file) => !file.failed), ...to.files];
}

function edit(message) {
  keep();
  draft.edited = { id: message.id, isOver: Boolean(message.isOver), text: message.text };
  show();
}

function again({ id, text }, button) {
  act(async () => {
    await sendOnce("/api/again", { thread: root, message: id, text });
    button.ariaDisabled = null;
  }, button);
}

function cancel() {
  draft.edited = null;
  show();
}

function remove(message, button) { act(() => call("/api/delete", { id: message.id, thread: root }), button); }

function judge(message, verdict, button) {
  act(async () => {
    await call("/api/feedback", { id: crypto.randomUUID(), thread: root, post: message.id, verdict });
    keepFocus(() => button.parentElement.replaceChildren("Thank you."));
  }, button);
}

// One after the other. A message waits for its files.
let uploading = Promise.resolve();

function attach(list) {
  const mine = draft;
  for (const file of list) {
    if (file.size > MOST_BYTES) {
      fault(new Error(`${file.name} is larger than ${size(MOST_BYTES)}.`));
      continue;
    }
    const one = { name: file.name, left: el("progress", { max: "1", value: "0", "aria-label": `Sending ${file.name}` }) };
    const progress = (part) => { one.left.value = part; };
    one.taken = uploading.then(() => ask(`/api/files?name=${param(file.name)}`, { body: file, progress }))
      .then(({ id, name: taken }) => ({ id: one.id = id, name: one.name = taken }));
    uploading = one.taken.catch((error) => {
      one.failed = true;
      mine.files = mine.files.filter((other) => other !== one);
      fault(error);
    }).then(showFiles);
    preview(one, file);
    mine.files.push(one);
  }
  showFiles();
}

async function preview(one, file) {
  if (!/^image\/(png|jpeg|gif|webp)$/.test(file.type)) return;
  const bitmap = await createImageBitmap(file, { resizeHeight: 72 }).catch(() => null);
  if (!bitmap) return;
  one.picture = el("canvas", { width: bitmap.width, height: bitmap.height, "aria-hidden": "true" });
  one.picture.getContext("2d").drawImage(bitmap, 0, 0);
  showFiles();
}

function showFiles() {
  keepFocus(() => $("files").replaceChildren(...draft.files.map((file) => el(
    "li", file.picture, file.name, file.id ? null : file.left,
    iconButton("x", `Remove ${file.name}`, () => {
      draft.files = draft.files.filter((one) => one !== file);
      showFiles();
    }),
  ))));
}

let chosen = 0;
let closed = false;

function completions() {
  const text = FIELD.value;
  return !closed && /^\/[a-z-]*$/i.test(text) ? COMMANDS.filter((command) => command.usage.startsWith(text.toLowerCase())) : [];
}

function showCompletions() {
  const found = completions();
  chosen = Math.min(chosen, Math.max(found.length - 1, 0));
  $("completions").hidden = !found.length;
  FIELD.setAttribute("aria-activedescendant", found.length ? `c-${chosen}` : "");
  $("completions").replaceChildren(...found.map((command, place) => el(
    "li", { role: "option", id: `c-${place}`, "aria-selected": String(place === chosen), click: () => complete(command) },
    el("strong", command.usage), ` ${command.text}`,
  )));
  $(`c-${chosen}`)?.scrollIntoView({ block: "nearest" });
}

function complete({ word, usage }) {
  FIELD.value = word + (usage === word ? "" : " ");
  showCompletions();
  FIELD.focus();
}

function grow() {
  FIELD.style.height = "auto";
  FIELD.style.height = `${FIELD.scrollHeight}px`;
}

// On a phone Enter begins a line, as its keyboard shows.
const TOUCH = matchMedia("(pointer: coarse) and (hover: none)");

on(FIELD, "keydown", (event) => {
  const work = keyWork(event, completions());
  if (!work) return;
  event.preventDefault();
  work();
});

function keyWork({ key, shiftKey, isComposing }, found) {
  const { value } = FIELD;
  const moveBy = (step) => () => { chosen = (chosen + step + found.length) % found.length; showCompletions(); };
  const take = () => complete(found[chosen]);
  const isWhole = found.some((command) => command.word === value.toLowerCase());
  if (key === "Enter" && (shiftKey || isComposing || (TOUCH.matches && !found.length))) return null;
  if (found.length) {
    const close = () => { closed = true; showCompletions(); };
    return { ArrowDown: moveBy(1), ArrowUp: moveBy(-1), Tab: take, Escape: close, Enter: isWhole ? submit : take }[key];
  }
  const editLast = !value && !draft.edited && thread.lastOwn && (() => edit(thread.lastOwn));
  return { Enter: submit, Escape: draft.edited && cancel, ArrowUp: editLast }[key];
}

on(FIELD, "input", () => { closed = false; showCompletions(); grow(); });
on(FIELD, "paste", (event) => {
  if (event.clipboardData.files.length) {
    event.preventDefault();
    attach(event.clipboardData.files);
  }
});
on("composer", "submit", submit);
on("cancel", "click", cancel);
on("file", "change", () => { attach($("file").files); $("file").value = ""; });
on(document, "dragover", (event) => {
  event.preventDefault();
  BODY.toggle("drop", event.dataTransfer.types.includes("Files"));
});
on(document, "dragleave", () => BODY.remove("drop"));
on(document, "drop", (event) => {
  BODY.remove("drop");
  if (!event.dataTransfer.files.length) return;
  event.preventDefault();
  attach(event.dataTransfer.files);
});
