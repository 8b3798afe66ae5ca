// One small box that says what is under the pointer. It never takes the focus, and Escape hides it.

import { $, h, vars } from "./dom.js";

const tip = $("tip");

/**
 * @param {number} x of the window, px @param {number} y
 * @param {string} title @param {string[]} [lines]
 */
export function showTip(x, y, title, lines = []) {
  tip.replaceChildren(h("b", {}, title), ...lines.map((line) => h("span", {}, line)));
  tip.hidden = false;
  const left = Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8));
  const top = y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 18;
  vars(tip, { left: `${left}px`, top: `${Math.max(8, top)}px` });
}

export function hideTip() {
  tip.hidden = true;
}

/** Elements with a property `tip`, a function that gives words, show them on hover and focus. @param {Element} root */
export function tips(root) {
  const holder = (target) => {
    for (let node = target; node && node !== root; node = node.parentElement) if (node.tip) return node;
    return null;
  };
  root.addEventListener("pointermove", (event) => {
    const node = holder(event.target);
    if (node) showTip(event.clientX, event.clientY, node.tip());
    else hideTip();
  });
  root.addEventListener("pointerleave", hideTip);
  root.addEventListener("focusin", (event) => {
    const node = holder(event.target);
    if (!node?.matches(":focus-visible")) return;
    const box = node.getBoundingClientRect();
    showTip(box.left, box.bottom - 12, node.tip());
  });
  root.addEventListener("focusout", hideTip);
}
