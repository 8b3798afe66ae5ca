// Many nodes at a glance: one small square a node, the darker the more of its CPU is granted; signs for trouble.

import { attribute, h, s, say, text } from "./dom.js";
import { number } from "./format.js";

const LEVELS = 5;
const MARKS = { draining: "M0 1 0 0 1 0Z", silent: "M.2.5H.8", unhealthy: "M.5.15V.6M.5.75V.85", lost: "M.2.2.8.8M.8.2.2.8" };

const levelOf = (node) => (node.granted_cores <= 1e-9 ? 0 : Math.min(LEVELS, 1 + Math.floor((LEVELS * node.granted_cores) / node.cpus)));
const words = (node) => `${node.name}, ${node.state}${node.problem ? `, ${node.problem}` : ""}: ${number(node.granted_cores)} of ${number(node.cpus, 0)} cores granted to ${node.tasks.length} tasks`;

function legend() {
  const squares = Array.from({ length: LEVELS + 1 }, (_, level) => h("i", { class: `l${level}` }));
  const sign = (state, name) => h("span", { class: "mark" }, s("svg", { viewBox: "0 0 1 1", class: `cell ${state}` }, s("rect", { width: 1, height: 1 }), s("path", { d: MARKS[state] })), name);
  return h("p", { class: "grid-key" }, h("span", {}, "granted: none ", ...squares, " all"), sign("draining", "draining"), sign("silent", "silent"), sign("unhealthy", "unhealthy"), sign("lost", "lost"));
}

/**
 * @param {Element} root
 * @param {(name: string) => void} choose a node was clicked, or Enter was pressed on it
 * @returns {(nodes: object[], drawn: Set<string>) => void}
 */
export function createGrid(root, choose) {
  const svg = s("svg", { tabindex: 0, role: "application", "aria-roledescription": "map of nodes", class: "grid" });
  root.append(svg, legend());
  let cells = [], shown = [], columns = 1, size = 14, at = 0;

  const place = () => {
    columns = Math.max(1, Math.floor(root.clientWidth / size));
    const rows = Math.ceil(cells.length / columns);
    attribute(svg, "viewBox", `0 0 ${columns * size} ${rows * size}`);
    attribute(svg, "width", columns * size);
    attribute(svg, "height", rows * size);
    cells.forEach((cell, k) => attribute(cell, "transform", `translate(${(k % columns) * size} ${Math.floor(k / columns) * size}) scale(${size - 2})`));
  };
  const cell = (k) => s("g", { "data-k": k }, s("rect", { width: 1, height: 1, rx: 0.15 }), s("path"), s("title"));
  const move = (to) => {
    cells[at]?.classList.remove("at");
    at = Math.min(shown.length - 1, Math.max(0, to));
    cells[at]?.classList.add("at");
    if (shown[at]) say(words(shown[at]));
  };
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (step) { event.preventDefault(); move(at + step); }
    else if (event.key === "Enter" && shown[at]) choose(shown[at].name);
  });
  svg.addEventListener("focus", () => move(at));
  svg.addEventListener("blur", () => cells[at]?.classList.remove("at"));
  svg.addEventListener("click", (event) => {
    const k = event.target.closest("g")?.dataset.k;
    if (k !== undefined) choose(shown[k].name);
  });
  new ResizeObserver(place).observe(root);

  return (nodes, drawn) => {
    shown = nodes;
    size = nodes.length > 300 ? 14 : 20;
    if (cells.length !== nodes.length) {
      cells = nodes.map((_, k) => cell(k));
      svg.replaceChildren(...cells);
      place();
    }
    attribute(svg, "aria-label", `${nodes.length} nodes; arrow keys move, Enter shows one`);
    nodes.forEach((node, k) => {
      const [, mark, title] = cells[k].children;
      attribute(cells[k], "class", `cell l${levelOf(node)} ${node.state}${drawn.has(node.name) ? " drawn" : ""}${k === at && document.activeElement === svg ? " at" : ""}`);
      attribute(mark, "d", MARKS[node.state] ?? "");
      text(title, words(node));
    });
  };
}
