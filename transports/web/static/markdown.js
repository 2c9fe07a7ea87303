// Builds elements from the tree of transports/web/markdown.py. Text only ever becomes text.
"use strict";

const DIRECTED = new Set("p h3 h4 h5 h6 ul ol li blockquote code table".split(" "));
const TAGS = new Set([...DIRECTED, ..."pre em strong s a hr br thead tbody tr th td span".split(" ")]);
const FIRST_LETTER = /\p{L}/u;
const FROM_RIGHT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const SAFE = /^(https?:\/\/|mailto:)/i;
const MATHML = "http://www.w3.org/1998/Math/MathML";
const LONG = 8000; // characters of code in one element

function fromTree(nodes) { return nodes.map(fromNode); }

function fromNode(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const [tag, attributes, ...children] = node;
  if (/^m[a-z]+$/.test(tag)) return formula(tag, attributes, children);
  const inside = fromTree(children);
  if (!TAGS.has(tag) || (tag === "a" && !SAFE.test(attributes.href))) return el("span", ...inside);
  if (tag === "a") return el("a", { href: attributes.href, rel: "noopener noreferrer nofollow", target: "_blank" }, ...inside);
  if (tag === "pre") return codeBlock(attributes.lang || "", children.join(""));
  const shown = { start: attributes.start, align: attributes.align };
  shown.class = attributes.size ? `size-${attributes.size}` : attributes.task != null ? "task" : null;
  const made = direct(el(tag, shown, ...inside));
  if (tag !== "table") return made;
  return holder(el("div.wide", { tabindex: "0", role: "group", "aria-label": "Table" }, made), made);
}

function formula(tag, attributes, children) {
  const element = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...fromTree(children));
  return element;
}

// By its first letter. "auto" looks past children with a direction of their own.
function direct(element) {
  const first = DIRECTED.has(element.localName) && FIRST_LETTER.exec(element.textContent);
  if (first) element.dir = FROM_RIGHT.test(first[0]) ? "rtl" : "ltr";
  return element;
}

// An element whose node has its children elsewhere in it.
function holder(element, inside) {
  element.inside = inside;
  return element;
}

// Applies a change of transports/web/live_markdown.py to the elements of a tree.
function change(root, [path, keep, more, nodes]) {
  const way = path.reduce((all, place) => {
    const next = all.at(-1).childNodes[place];
    return [...all, next.inside ?? next];
  }, [root]);
  const at = way.at(-1);
  if (at.dataset.code) {
    if (!keep) at.replaceChildren();
    addCode(at, more + nodes.join(""));
  } else {
    while (at.childNodes.length > keep) at.lastChild.remove();
    if (more) at.lastChild.appendData(more);
    at.append(...fromTree(nodes));
  }
  way.filter((one) => one !== root && !one.dir).forEach(direct);
}

function codeBlock(language, text) {
  const code = el("code", { "data-code": "code" });
  addCode(code, text);
  const copy = copyButton("Copy code", () => code.textContent);
  const pre = el("pre", { tabindex: "0", "aria-label": language ? `Code, ${language}` : "Code" }, code);
  return holder(el("figure.code", { "data-language": language }, el("figcaption", el("span", language), copy), pre), code);
}

const uncoloured = whenInSight(colour);

function colourAll(root) {
  for (const block of root.querySelectorAll("figure.code:not([data-language=''])")) uncoloured.observe(block);
}

async function colour(block) {
  const code = block.inside;
  const text = code.textContent;
  const answer = await call("/api/colours", { language: block.dataset.language, code: text }).catch(() => null);
  if (!answer?.parts.length || code.textContent !== text) return;
  code.replaceChildren(...answer.parts.map(([kind, piece]) => (kind ? el("span", { class: kind }, piece) : piece)));
}

// Long code is in pieces of whole lines: the browser lays out those that are in sight.
function addCode(code, text) {
  const last = code.lastChild ?? code.appendChild(el("span"));
  const all = last.textContent + text;
  if (all.length <= LONG) {
    if (last.firstChild) last.firstChild.appendData(text);
    else last.append(text);
    return;
  }
  const pieces = all.match(new RegExp(`[^]{1,${LONG}}(?:\\n|$)|[^]{1,${LONG}}`, "g"));
  last.remove();
  code.append(...pieces.map((piece) => el("span.lines", piece)));
}

function copyButton(label, text) {
  const say = (name, words) => { button.replaceChildren(icon(name)); button.ariaLabel = words; };
  const button = iconButton("copy", label, async () => {
    await navigator.clipboard.writeText(text()).then(() => say("check", "Copied"), () => say("x", "Not copied"));
    setTimeout(say, 2000, "copy", label);
  });
  return button;
}
