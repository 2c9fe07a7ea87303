// One thread as it is on the page: the events of transports/web/events.py go in, elements come out.
"use strict";

const STATES = {
  waiting: "waits", running: "answering", answered: "", posted: "", merged: "Joined the answer before.", refused: "Not taken.",
  failed: "Failed.", stopped: "Stopped.", withdrawn: "Deleted.", dead_letter: "Given up.", undelivered: "Could not be posted.",
};
// As in Slack: one button of a question stands out, and what one may regret is marked.
function styleOf(command, first) {
  if (command.startsWith("/deny")) return "quiet danger";
  return first && /^\/(approve|retry)/.test(command) ? "" : "quiet";
}

const PICTURE = /\.(png|jpe?g|gif|webp)$/i;

function picture({ address, name }) {
  const image = el("img", { src: `${address}?picture`, alt: name, loading: "lazy" });
  const link = el("a.picture", { href: `${address}?picture`, target: "_blank" }, image);
  image.addEventListener("error", () => link.remove());
  return link;
}

function showSign(element, name, words) {
  element.dataset.done = "";
  element.replaceChildren(icon(name), el("span.visually-hidden", `${words}:`));
}

class Message {
  constructor(id) {
    this.id = id;
    this.state = "waiting";
    this.parts = new Map();
    this.own = el("div.text", { dir: "auto" });
    this.meta = el("p.meta");
    this.tools = el("div.tools");
    this.draft = el("div.draft", { "aria-hidden": "true" });
    this.wait = el("p.wait", { role: "status" });
    this.shownBefore = el("div");
    this.posts = el("div.posts");
    this.spent = el("p.meta");
    this.buttons = el("div.actions");
    this.regenerate = iconButton("refresh-cw", "Regenerate", () => again(this, this.regenerate));
    this.asked = el("article.person", { "aria-label": "Message" }, this.own, this.meta);
    this.element = el("li", { tabindex: "-1", id: `m-${id}` }, this.asked, this.buttons, el("div.bot", this.tools, this.draft, this.shownBefore, this.wait, this.posts, this.spent));
    this.showState();
  }

  apply(event) { this[`on_${event.op}`]?.(event); }

  on_message(event) {
    if (event.text != null) this.setText(event.text);
    if (event.at) this.at = event.at;
    if (event.replaces) this.replaces = event.replaces;
    if (event.files?.length) {
      const names = event.files.map((file) => el("li", `${file.name} (${size(file.size)})`));
      this.part("sent", el("ul.files", ...names), this.asked);
    }
    this.showState();
  }

  on_edit(event) { this.setText(event.text); }

  on_started(event) {
    if (event.text) this.setText(event.text);
    if (this.state === "waiting") this.state = "running";
    this.showState();
  }

  on_draft(event) {
    this.running();
    while (this.draft.children.length <= event.part) this.draft.append(el("div.markdown"));
    for (const one of event.changes) change(this.draft.children[event.part], one);
  }

  on_thinking() {
    this.running();
    if (!this.draft.hasChildNodes()) this.wait.textContent = "Thinking …";
  }

  on_wait(event) {
    this.running();
    this.until = event.until ? Date.parse(event.until) : 0;
    const tries = event.attempts ? `, ${event.attempt} of ${event.attempts}` : "";
    this.left = el("span", { "aria-hidden": "true" }); // not read out every second
    this.wait.replaceChildren(`Waiting: ${event.reason}${tries}`, this.left);
    this.tick();
  }

  on_resumed() { this.clearWait(); }

  on_tool(event) {
    this.running();
    const card = el(
      "details.tool",
      el("summary", el("span.sign", icon("clock")), event.label),
      el("p", el("strong", event.name)),
      el("pre", { tabindex: "0", "aria-label": "Arguments" }, event.arguments || "(no arguments)"),
      el("pre", { tabindex: "0", "aria-label": "Result", hidden: true }),
    );
    this.part(`tool ${event.call}`, card, this.tools);
  }

  on_tool_done(event) {
    const card = this.parts.get(`tool ${event.call}`);
    if (!card) return;
    showSign(card.querySelector(".sign"), event.ok ? "circle-check" : "circle-x", event.ok ? "done" : "did not work");
    card.classList.toggle("failed", !event.ok);
    if (event.result) Object.assign(card.querySelector("pre:last-child"), { textContent: event.result, hidden: false });
  }

  on_post(event) {
    const choices = event.choices.map(({ command, label }, place) =>
      el("button", { type: "button", class: styleOf(command, !place), click: ({ target }) => act(() => send(command), target) }, label));
    const own = event.key === event.id;
    this.isReply ||= own && event.kind === "reply";
    const same = own ? event.same ?? 0 : 0; // blocks of the answer that are shown already stay what they are
    const shown = [...this.draft.children].flatMap((part) => [...part.childNodes]).slice(0, same);
    const post = el(
      "article", { class: `post ${event.kind}${choices.length ? " asks" : ""}`, "aria-label": own ? "Answer" : choices.length ? "Question" : "Notice" },
      el("div.markdown", ...shown, ...fromTree(event.tree.slice(same))),
      choices.length ? el("div.choices", { role: "group", "aria-label": "Your answer" }, ...choices) : null,
    );
    if (own) {
      this.written = event.text;
      this.parts.get(`post ${event.key}`)?.remove(); // what was asked before it stays above it
      this.parts.delete(`post ${event.key}`);
      this.draft.replaceChildren();
      this.clearWait();
    }
    this.part(`post ${event.key}`, post, this.posts);
    colourAll(post);
  }

  on_file(event) {
    const link = el("a", { href: event.address, download: event.name }, `${event.name} (${size(event.size)})`);
    const where = event.elsewhere ? el("span.meta", " at another worker of the bot: its page has it") : null;
    const shown = PICTURE.test(event.name) ? picture(event) : null;
    this.part(`file ${event.key}`, el("div.file", shown, el("p", link, where)), this.posts);
  }

  on_picture(event) { this.part(`picture ${event.key}`, picture(event), this.asked); }

  on_spent(event) {
    this.model = event.model;
    const cost = event.cost == null ? "cost unknown" : event.cost.toLocaleString([], { style: "currency", currency: "USD", maximumFractionDigits: 4 });
    const cached = event.cached ? `, ${event.cached.toLocaleString([], { style: "percent" })} cached` : "";
    this.spent.textContent = `${event.model} · ${event.tokens.toLocaleString()} tokens${cached} · ${cost}`;
  }

  on_closed(event) { this.close(this.parts.get(`post ${event.key}`), event.decision); }

  close(post, decision) {
    if (!post) return;
    post.classList.remove("asks");
    post.querySelector(".choices, .decision")?.remove();
    post.append(el("p.meta.decision", decision));
  }

  on_settled(event) {
    if (event.outcome === "stopped" && this.state === "waiting") dropped(this);
    this.state = event.outcome;
    if (["refused", "withdrawn"].includes(event.outcome)) this.replaces = ""; // the conversation is as it was
    if (event.tree) this.part("shown", el("div.markdown.stopped", ...fromTree(event.tree)), this.shownBefore);
    this.draft.replaceChildren();
    if (event.outcome === "withdrawn") this.posts.replaceChildren(); // its questions
    this.clearWait();
    for (const open of this.tools.querySelectorAll(".sign:not([data-done])")) showSign(open, "circle-x", "not done");
    for (const post of this.posts.querySelectorAll(".notice.asks")) this.close(post, "Not decided.");
    for (const post of this.posts.querySelectorAll(".asks")) post.classList.remove("asks");
    this.showState();
  }

  running() {
    this.clearWait();
    if (this.state !== "waiting") return;
    this.state = "running";
    this.showState();
  }

  clearWait() {
    this.until = null;
    this.wait.textContent = "";
  }

  // The page calls it every second.
  tick() {
    if (this.until == null) return;
    const left = Math.ceil((this.until - Date.now()) / 1000);
    this.left.textContent = left > 0 ? `, trying again in ${left} s` : "";
  }

  setText(text) {
    this.text = text;
    this.own.textContent = text;
    this.asked.classList.toggle("command", /^[/!][a-z]/i.test(text));
    this.asked.hidden ||= /^\/retry \S/.test(text); // a press
  }

  // In the place of an earlier element with the same key, or at the end of the parent.
  part(key, element, parent) {
    const before = this.parts.get(key);
    if (before) before.replaceWith(element);
    else parent.append(element);
    this.parts.set(key, element);
  }

  showState() {
    const word = STATES[this.state] ?? this.state;
    const at = new Date(this.at);
    const whole = { dateStyle: "full", timeStyle: "long" };
    const time = this.at ? el("time", { datetime: this.at, title: at.toLocaleString([], whole) }, at.toLocaleTimeString([], { timeStyle: "short" })) : "";
    this.meta.replaceChildren(time, time && word ? " · " : "", word);
    this.element.dataset.state = this.state;
    const hasActions = this.parts.has("actions");
    const pencil = iconButton("pencil", "Edit", () => edit(this));
    const last = this.waits ? iconButton("trash-2", "Delete", (press) => remove(this, press.currentTarget)) : this.regenerate;
    this.buttons.replaceChildren(...this.waits || this.isOver ? [pencil, hasActions ? "" : last] : []);
    if (this.state === "answered" && this.isReply && !hasActions) {
      const say = (verdict) => (press) => judge(this, verdict, press.currentTarget);
      this.part("actions", el(
        "div.actions",
        copyButton("Copy answer", () => this.written), this.regenerate,
        this.byModel ? el("span.feedback", { role: "group", "aria-label": "Was this answer good?" },
          iconButton("thumbs-up", "Good answer", say("up")), iconButton("thumbs-down", "Bad answer", say("down"))) : null,
        this.spent,
      ), this.posts.parentElement);
    }
    this.regenerate.hidden = !this.isOver;
  }

  get waits() { return this.state === "waiting" && this.text != null && this.at; }

  get busy() { return this.state === "waiting" || this.state === "running"; }

  // A rule of the demo, or a command, is no model.
  get byModel() { return this.model && !this.model.startsWith("offline/") && !/^\s*[/!]compact/i.test(this.text); }

  // Whether the conversation can go back to it.
  get isOver() {
    const wrote = this.state === "answered" ? this.model : this.state === "stopped" && this.parts.has("shown");
    return wrote && !this.past && this.text != null && !/^\s*[/!][a-z]/i.test(this.text);
  }
}

class Thread {
  constructor(list, earlier) {
    this.list = list;
    this.button = earlier;
    this.messages = new Map();
    this.view = list.parentElement;
    this.follows = true;
    this.room = this.view.clientHeight;
    // A long draft, or the keyboard of a phone, takes room: the end stays in sight. A scroll may be told after that.
    this.view.addEventListener("scroll", () => { if (this.view.clientHeight === this.room) this.follows = this.atEnd; });
    new ResizeObserver(() => {
      this.room = this.view.clientHeight;
      if (this.follows) this.toEnd();
    }).observe(this.view);
  }

  get atEnd() { return this.view.scrollHeight - this.view.scrollTop - this.view.clientHeight < 80; }

  toEnd() { this.view.scrollTop = this.view.scrollHeight; }

  clear() {
    this.messages.clear();
    this.list.replaceChildren();
    this.showEarlier(0);
  }

  showEarlier(count) {
    this.earlier = count;
    this.button.textContent = `Load earlier messages (${count.toLocaleString()} more)`;
    this.button.hidden = !count;
  }

  prepend(events) {
    const { view, list: { firstChild: first } } = this;
    const below = view.scrollHeight - view.scrollTop;
    this.replay(events.filter((event) => !this.messages.has(event.id)), first);
    view.scrollTop = view.scrollHeight - below;
  }

  // Tells what is over already: nothing is given back for it.
  replay(events, before = null) {
    this.isReplay = true;
    for (const event of events) {
      if (event.op === "earlier") this.showEarlier(event.count);
      else this.message(event.id, before).apply(event);
    }
    this.isReplay = false;
    this.fold();
  }

  // What another message took the place of is an earlier version, with all that followed it.
  fold() {
    for (const fold of this.list.querySelectorAll(".earlier")) fold.replaceWith(...fold.querySelector("ol").children);
    for (const { id } of [...this.list.children]) {
      const message = this.messages.get(id.slice(2));
      const first = this.messages.get(message.replaces);
      if (!message.replaces || (first && first.element.parentElement !== this.list)) continue;
      const all = [...this.list.children];
      const past = all.slice(Math.max(0, all.indexOf(first?.element)), all.indexOf(message.element));
      message.fold ??= el("li.earlier", el("details.tool", el("summary", icon("history"), "Earlier version"), el("ol")));
      message.fold.querySelector("ol").replaceChildren(...past);
      if (past.length) message.element.before(message.fold);
      const files = first?.parts.get("sent");
      if (files && !message.parts.has("sent")) message.part("sent", files.cloneNode(true), message.asked);
    }
    for (const message of this.messages.values()) {
      const past = message.element.parentElement !== this.list;
      if (past === Boolean(message.past)) continue;
      message.past = past;
      message.showState();
    }
  }

  apply(events) {
    const { atEnd, view: { scrollTop } } = this;
    for (const event of events) {
      if (event.op === "snapshot") {
        this.clear();
        this.replay(event.events);
        this.begun = this.messages.size;
        this.view.scrollTop = scrollTop;
      } else if (event.op === "told") {
        told(event.text);
      } else if (event.id) {
        this.message(event.id).apply(event);
        if (event.replaces || (event.op === "settled" && this.message(event.id).fold)) this.fold();
      }
    }
    if (atEnd) this.toEnd();
  }

  message(id, before = null) {
    let message = this.messages.get(id);
    if (!message) {
      message = new Message(id);
      this.messages.set(id, message);
      this.list.insertBefore(message.element, before);
    }
    return message;
  }

  tick() { for (const message of this.messages.values()) message.tick(); }

  get busy() { return [...this.messages.values()].some((message) => message.busy); }

  get asks() { return this.list.querySelectorAll(".asks").length; }

  get lastOwn() {
    const last = [...this.messages.values()].at(-1);
    return last?.waits || last?.isOver ? last : null;
  }
}

const size = (bytes) => bytes.toLocaleString([], { notation: "compact", style: "unit", unit: "byte", unitDisplay: "narrow" });
