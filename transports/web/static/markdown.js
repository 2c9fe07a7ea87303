// Builds elements from the tree of transports/web/markdown.py. Text only ever becomes text.
"use strict";

const TAGS = new Set(
  ("p h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s a hr br table thead tbody tr th td span").split(" "),
);
const DIRECTED = new Set("p ul ol li blockquote code".split(" "));
const FROM_RIGHT = /^\P{L}*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/u;
const SAFE = /^(https?:\/\/|mailto:)/i;

function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

function fromTree(nodes) {
  return nodes.map((node) => {
    if (typeof node === "string") return document.createTextNode(node);
    const [tag, attributes, ...children] = node;
    if (!TAGS.has(tag)) return document.createTextNode(children.filter((c) => typeof c === "string").join(""));
    const inside = fromTree(children);
    if (tag === "a") {
      if (!SAFE.test(attributes.href)) return el("span", {}, ...inside);
      return el("a", { href: attributes.href, rel: "noopener noreferrer nofollow", target: "_blank" }, ...inside);
    }
    if (tag === "pre") return codeBlock(attributes.lang || "", children.join(""));
    if (tag === "table") return el("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" }, directed("table", {}, inside));
    if (/^h[1-6]$/.test(tag)) return directed("h4", {}, inside);
    const shown = { start: attributes.start, align: attributes.align };
    return DIRECTED.has(tag) ? directed(tag, shown, inside) : el(tag, shown, ...inside);
  });
}

// In the direction of its first letter. "auto" looks past the children that have a direction of their own.
function directed(tag, attributes, inside) {
  const element = el(tag, attributes, ...inside);
  element.dir = FROM_RIGHT.test(element.textContent) ? "rtl" : "ltr";
  return element;
}

function codeBlock(language, text) {
  const copy = el("button", { type: "button", class: "quiet copy", click: () => copyText(copy, text) }, "Copy");
  return el(
    "figure", { class: "code" },
    el("figcaption", {}, language || "code", copy),
    el("pre", { tabindex: "0", "aria-label": language ? `Code, ${language}` : "Code" }, el("code", {}, text)),
  );
}

async function copyText(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}
