// Makes elements. Text only ever becomes text.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

// As el("p.meta", { title: "…" }, child, "text"): a name with classes, attributes or none, and what is inside.
function el(tag, ...children) {
  const [kind, ...classes] = tag.split(".");
  const element = document.createElement(kind);
  element.className = classes.join(" ");
  const attributes = children[0]?.constructor === Object ? children.shift() : {};
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value != null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = svg.appendChild(document.createElementNS(SVG, "use"));
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  return svg;
}

const button = (click, ...inside) => el("button", { type: "button", class: "quiet", click }, ...inside);

// Its name is read out, and shown to a mouse.
function iconButton(name, label, click) {
  return Object.assign(button(click, icon(name)), { className: "quiet sign", ariaLabel: label, title: label });
}

// Observes elements until they come into sight, each once.
const whenInSight = (work) => new IntersectionObserver((entries, observer) => {
  for (const { target } of entries.filter((one) => one.isIntersecting)) {
    observer.unobserve(target);
    work(target);
  }
});
