// Makes elements. Text only ever becomes text.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

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

function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const use = svg.appendChild(document.createElementNS(SVG, "use"));
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  use.setAttribute("href", `#i-${name}`);
  return svg;
}

const button = (click, ...inside) => el("button", { type: "button", class: "quiet", click }, ...inside);

// A button that shows an icon; its name is read out, and shown to a mouse.
function iconButton(name, label, click) {
  return el("button", { type: "button", class: "quiet sign", "aria-label": label, title: label, click }, icon(name));
}
