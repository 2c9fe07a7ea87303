// One thread as it is on the page: the events of transports/web/events.py go in, elements come out.
"use strict";

const OUTCOMES = {
  answered: "", posted: "", merged: "Joined the answer before.", refused: "Not taken.", failed: "Failed.", stopped: "Stopped.",
  withdrawn: "Deleted.", dead_letter: "Given up.", undelivered: "Could not be posted.",
};
// As in Slack: what one may regret is told from what goes on, and only one button of a question stands out.
function styleOf(command, first) {
  if (command.startsWith("/deny")) return "quiet danger";
  return first && /^\/(approve|retry)/.test(command) ? "" : "quiet";
}

const TIME = new Intl.DateTimeFormat([], { hour: "numeric", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat([], { dateStyle: "full", timeStyle: "long" });
const MONEY = new Intl.NumberFormat([], { style: "currency", currency: "USD", minimumFractionDigits: 2, maximumFractionDigits: 4 });
const PERCENT = new Intl.NumberFormat([], { style: "percent" });
const SIGNS = { waiting: "waits", running: "answering" };

const PICTURE = /\.(png|jpe?g|gif|webp)$/i;

function picture({ address, name }) {
  const image = el("img", { src: `${address}?picture`, alt: name, loading: "lazy" });
  const link = el("a", { class: "picture", href: `${address}?picture`, target: "_blank" }, image);
  image.addEventListener("error", () => link.remove());
  return link;
}

function showSign(element, name, words) {
  element.dataset.done = "";
  element.replaceChildren(icon(name), el("span", { class: "visually-hidden" }, `${words}:`));
}

class Message {
  constructor(id, actions) {
    this.id = id;
    this.state = "waiting";
    this.actions = actions;
    this.parts = new Map();
    this.own = el("div", { class: "text", dir: "auto" });
    this.meta = el("p", { class: "meta" });
    this.tools = el("div", { class: "tools" });
    this.draft = el("div", { class: "draft", "aria-hidden": "true" });
    this.wait = el("p", { class: "wait", role: "status" });
    this.shownBefore = el("div");
    this.posts = el("div", { class: "posts" });
    this.spent = el("p", { class: "meta" });
    this.buttons = el("div", { class: "actions" });
    this.regenerate = iconButton("refresh-cw", "Regenerate", () => this.actions.again(this, this.regenerate));
    this.asked = el("article", { class: "person", "aria-label": "Message" }, this.own, this.meta);
    this.element = el("li", { tabindex: "-1" }, this.asked, this.buttons, el("div", { class: "bot" }, this.tools, this.draft, this.shownBefore, this.wait, this.posts, this.spent));
    this.element.id = `m-${id}`;
    this.showState();
  }

  apply(event) {
    const act = this[`on_${event.op}`];
    if (act) act.call(this, event);
  }

  on_message(event) {
    if (event.text != null) this.setText(event.text);
    if (event.at) this.at = event.at;
    if (event.replaces) this.replaces = event.replaces;
    if (event.files?.length) {
      const names = event.files.map((file) => el("li", {}, `${file.name} (${size(file.size)})`));
      this.part("sent", el("ul", { class: "files" }, ...names), this.asked);
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
    while (this.draft.children.length <= event.part) this.draft.append(el("div", { class: "markdown" }));
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
    const result = el("pre", { tabindex: "0" });
    const card = el(
      "details", { class: "tool" },
      el("summary", {}, el("span", { class: "sign" }, icon("clock")), event.label),
      el("p", {}, el("strong", {}, event.name)),
      el("pre", { tabindex: "0", "aria-label": "Arguments" }, event.arguments || "(no arguments)"),
      result,
    );
    result.hidden = true;
    this.part(`tool ${event.call}`, card, this.tools);
  }

  on_tool_done(event) {
    const card = this.parts.get(`tool ${event.call}`);
    if (!card) return;
    showSign(card.querySelector(".sign"), event.ok ? "circle-check" : "circle-x", event.ok ? "done" : "did not work");
    card.classList.toggle("failed", !event.ok);
    if (event.result) {
      const result = card.querySelector("pre:last-child");
      result.textContent = event.result;
      result.hidden = false;
      result.setAttribute("aria-label", "Result");
    }
  }

  on_post(event) {
    const choices = event.choices.map(({ command, label }, place) =>
      el("button", { type: "button", class: styleOf(command, !place), click: (press) => this.actions.press(command, press.target) }, label));
    const own = event.key === event.id;
    this.isReply ||= own && event.kind === "reply";
    const post = el(
      "article", { class: `post ${event.kind}${choices.length ? " asks" : ""}`, "aria-label": own ? "Answer" : choices.length ? "Question" : "Notice" },
      el("div", { class: "markdown" }, ...this.shown(event, own), ...fromTree(event.tree.slice(own ? event.same ?? 0 : 0))),
      choices.length ? el("div", { class: "choices", role: "group", "aria-label": "Your answer" }, ...choices) : null,
    );
    if (own) {
      this.written = event.text;
      this.parts.get(`post ${event.key}`)?.remove(); // the answer of the thread's log stands above what was asked before it
      this.parts.delete(`post ${event.key}`);
      this.draft.replaceChildren();
      this.clearWait();
    }
    this.part(`post ${event.key}`, post, this.posts);
    colourAll(post);
  }

  // The blocks of the answer that are shown already, for its post: they stay what they are.
  shown(event, own) {
    const blocks = [...this.draft.children].flatMap((part) => [...part.childNodes]);
    return own ? blocks.slice(0, event.same ?? 0) : [];
  }

  on_file(event) {
    const link = el("a", { href: event.address, download: event.name }, `${event.name} (${size(event.size)})`);
    const where = event.elsewhere ? el("span", { class: "meta" }, " at another worker of the bot: its page has it") : null;
    const shown = PICTURE.test(event.name) ? picture(event) : null;
    this.part(`file ${event.key}`, el("div", { class: "file" }, shown, el("p", {}, link, where)), this.posts);
  }

  on_picture(event) { this.part(`picture ${event.key}`, picture(event), this.asked); }

  on_spent(event) {
    this.model = event.model;
    const cost = event.cost == null ? "cost unknown" : MONEY.format(event.cost);
    const cached = event.cached ? `, ${PERCENT.format(event.cached)} cached` : "";
    this.spent.textContent = `${event.model} · ${event.tokens.toLocaleString()} tokens${cached} · ${cost}`;
  }

  on_closed(event) {
    const post = this.parts.get(`post ${event.key}`);
    post?.querySelector(".choices")?.remove();
    post?.classList.remove("asks");
    if (!post?.querySelector(".decision")) post?.append(el("p", { class: "meta decision" }, event.decision));
  }

  on_settled(event) {
    if (event.outcome === "stopped" && this.state === "waiting") this.actions.dropped(this);
    this.state = event.outcome;
    if (["refused", "withdrawn"].includes(event.outcome)) this.replaces = ""; // the conversation is as it was
    if (event.tree) this.part("shown", el("div", { class: "markdown stopped" }, ...fromTree(event.tree)), this.shownBefore);
    this.draft.replaceChildren();
    if (event.outcome === "withdrawn") this.posts.replaceChildren(); // its questions
    this.clearWait();
    for (const open of this.tools.querySelectorAll(".sign:not([data-done])")) showSign(open, "circle-x", "not done");
    for (const choices of this.element.querySelectorAll(".notice .choices")) choices.replaceWith(el("p", { class: "meta" }, "Not decided."));
    for (const post of this.element.querySelectorAll(".asks")) post.classList.remove("asks");
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

  // Counts down a wait; the page calls it every second.
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

  // Puts an element in the place of an earlier one with the same key, or at the end of the parent.
  part(key, element, parent) {
    const before = this.parts.get(key);
    if (before) before.replaceWith(element);
    else parent.append(element);
    this.parts.set(key, element);
  }

  showState() {
    const word = SIGNS[this.state] ?? OUTCOMES[this.state] ?? this.state;
    const time = this.at ? el("time", { datetime: this.at, title: DATE.format(new Date(this.at)) }, TIME.format(new Date(this.at))) : "";
    this.meta.replaceChildren(time, time && word ? " · " : "", word);
    this.element.dataset.state = this.state;
    this.buttons.replaceChildren(...this.waits ? [
      iconButton("pencil", "Edit", () => this.actions.edit(this)),
      iconButton("trash-2", "Delete", (press) => this.actions.remove(this, press.currentTarget)),
    ] : this.isOver ? [
      iconButton("pencil", "Edit", () => this.actions.edit(this)), ...this.parts.has("actions") ? [] : [this.regenerate],
    ] : []);
    if (this.state === "answered" && this.isReply && !this.parts.has("actions")) {
      const judge = (verdict) => (press) => this.actions.judge(this, verdict, press.currentTarget);
      this.part("actions", el(
        "div", { class: "actions" },
        copyButton("Copy answer", () => this.written), this.regenerate,
        this.byModel ? el("span", { class: "feedback", role: "group", "aria-label": "Was this answer good?" },
          iconButton("thumbs-up", "Good answer", judge("up")), iconButton("thumbs-down", "Bad answer", judge("down"))) : null,
        this.spent,
      ), this.posts.parentElement);
    }
    this.regenerate.hidden = !this.isOver;
  }

  get waits() { return this.state === "waiting" && this.text != null && this.at; }

  get busy() { return this.state === "waiting" || this.state === "running"; }

  // The rules of the demo, and what a command says, are no answers of a model.
  get byModel() { return this.model && !this.model.startsWith("offline/") && !/^\s*[/!]compact/i.test(this.text); }

  // Whether the conversation can go back to it, and says something else from there on.
  get isOver() {
    const wrote = this.state === "answered" ? this.model : this.state === "stopped" && this.parts.has("shown");
    return wrote && !this.past && this.text != null && !/^\s*[/!][a-z]/i.test(this.text);
  }
}

class Thread {
  constructor(list, earlier, actions) {
    this.list = list;
    this.button = earlier;
    this.actions = actions;
    this.messages = new Map();
    this.view = list.parentElement;
    this.follows = true;
    this.room = this.view.clientHeight;
    // As a long draft or the keyboard of a phone takes its room, the end stays in sight. A scroll may be told after that.
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
    const shown = new Set(this.messages.keys());
    this.replay(events.filter((event) => !shown.has(event.id)), first);
    view.scrollTop = view.scrollHeight - below;
  }

  // Tells what is over already: nothing is given back for it.
  replay(events, before = null) {
    const { dropped } = this.actions;
    this.actions.dropped = () => {};
    for (const event of events) {
      if (event.op === "earlier") this.showEarlier(event.count);
      else this.message(event.id, before).apply(event);
    }
    this.actions.dropped = dropped;
    this.fold();
  }

  // What another message took the place of is an earlier version, with all that followed up to that one.
  fold() {
    for (const fold of this.list.querySelectorAll(".earlier")) fold.replaceWith(...fold.querySelector("ol").children);
    for (const { id } of [...this.list.children]) {
      const message = this.messages.get(id.slice(2));
      const first = this.messages.get(message.replaces);
      if (!message.replaces || (first && first.element.parentElement !== this.list)) continue;
      const past = [];
      for (let item = message.element; item && item !== first?.element;) if (item = item.previousElementSibling) past.unshift(item);
      message.fold ??= el("li", { class: "earlier" }, el("details", { class: "tool" }, el("summary", {}, icon("history"), "Earlier version"), el("ol")));
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
        this.view.scrollTop = scrollTop;
      } else if (event.op === "told") {
        this.actions.told(event.text);
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
      message = new Message(id, this.actions);
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

function size(bytes) {
  if (bytes >= 1e6) return `${(bytes / 1e6).toFixed(1)} MB`;
  return bytes >= 1e3 ? `${Math.round(bytes / 1e3)} KB` : `${bytes} bytes`;
}
