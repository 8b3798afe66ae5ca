// Elements from data. Text from users is only ever set as text or as an attribute's value: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";
const rows = new WeakMap();

/** The element of the page with this id. @param {string} id */
export const $ = (id) => document.getElementById(id);

// Ends of lines and tabs stay: HTML shows them as spaces, and the output of a program as they are.
const UNSHOWN = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A text with each character that is not seen, or changes the direction of others, as an escape. @param {string} words */
export const visible = (words) => words.replace(UNSHOWN, (one) => {
  const code = one.charCodeAt(0);
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
});

const shown = (child) => (typeof child === "string" ? visible(child) : child);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [kind, act] of Object.entries(value)) node.addEventListener(kind, act);
    else if (name === "vars") vars(node, value);
    else node.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined).map(shown));
  return node;
}

/**
 * An HTML element.
 * @param {string} tag
 * @param {object} [attributes] `on`: listeners by kind; `vars`: CSS properties; null and false are left out
 * @param {...(Node|string|null|Array)} children strings become text
 */
export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element; as `h`. */
export const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Set CSS properties one by one: a strict content security policy allows that, and no style attribute. */
export function vars(node, values) {
  for (const [name, value] of Object.entries(values)) node.style.setProperty(name, value);
}

/** Set the text of a node if it is another. */
export function text(node, value) {
  const words = visible(String(value ?? ""));
  if (node.textContent !== words) node.textContent = words;
}

/** Set an attribute if it is another; null removes it. */
export function attribute(node, name, value) {
  if (value === null || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== visible(String(value))) node.setAttribute(name, visible(String(value)));
}

/**
 * Make the children of `parent` show `items` in order. Elements are kept by key, so focus, hover and transitions stay.
 * @template T
 * @param {Element} parent
 * @param {T[]} items
 * @param {(item: T) => (string|number)} keyOf
 * @param {(item: T) => Element} create
 * @param {(node: Element, item: T) => void} update
 */
export function keyed(parent, items, keyOf, create, update) {
  const old = rows.get(parent) ?? new Map(), now = new Map(), { activeElement: focused } = document;
  for (const item of items) {
    const key = keyOf(item), node = old.get(key) ?? create(item);
    update(node, item);
    now.set(key, node);
  }
  // Before the others are put in order: what stays where it is keeps the focus, and what is moved loses it.
  for (const [key, node] of old) if (!now.has(key)) node.remove();
  let place = parent.firstElementChild;
  for (const node of now.values()) {
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
  rows.set(parent, now);
}

/** Only for readers of the screen. */
export const unseen = (words) => h("span", { class: "hidden" }, words);

/** Say something to readers of the screen, after what they are hearing. */
export function say(words) {
  text($("said"), words);
}

/**
 * One tab stop for many controls: the arrow keys move between those that `selector` finds in `root`.
 * @param {Element} root
 * @param {string} selector
 */
export function roving(root, selector) {
  root.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const all = [...root.querySelectorAll(selector)], at = all.indexOf(document.activeElement);
    if (at < 0 || (!step && event.key !== "Home" && event.key !== "End")) return;
    event.preventDefault();
    const next = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : Math.min(all.length - 1, Math.max(0, at + step));
    all[at].tabIndex = -1;
    all[next].tabIndex = 0;
    all[next].focus();
  });
  root.addEventListener("focusin", (event) => {
    if (!event.target.matches(selector)) return;
    for (const other of root.querySelectorAll(selector)) other.tabIndex = other === event.target ? 0 : -1;
  });
}

/** After an update: exactly one of the controls of a roving group is a tab stop. */
export function oneStop(root, selector) {
  const all = root.querySelectorAll(selector);
  if (all.length && ![...all].some((control) => control.tabIndex === 0)) all[0].tabIndex = 0;
}
