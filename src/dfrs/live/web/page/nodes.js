// Nodes as bars: each job's share as a block, what it uses of it as a line in the block, memory as a thin bar below.

import { $, attribute, h, keyed, oneStop, roving, text, vars } from "./dom.js";
import { age, bytesOf, date, number, plural } from "./format.js";
import { createGrid } from "./grid.js";
import { colourOf } from "./palette.js";

const DRAWN = 24;
const DRAWN_OF_MANY = 10;
export const SIGN = { up: "●", draining: "◐", silent: "?", unhealthy: "!", lost: "✕" };
export const MEANING = {
  up: "it takes jobs", draining: "it keeps what it has and gets nothing more", silent: "no word from it; its jobs may run on",
  unhealthy: "it cannot do its work; it keeps what it has, gets nothing more, and opens by itself",
  lost: "it was silent for so long that its jobs were queued again, or it left",
};
const BLOCKS = "button.block";
const NOTICEABLE = 0.05; // of a node: what programs beside the cluster use

const width = (part) => `${100 * Math.min(1, Math.max(0, part))}%`;

const cores = (node) => number(node.cpus, Number.isInteger(node.cpus) ? 0 : 1);

function describe(task, node) {
  const part = `granted ${number(task.share_cores)} of ${cores(node)} cores`;
  const used = task.used_cores === null ? "use not measured" : `uses ${number(task.used_cores)}`;
  return `job ${task.job}, ${task.name}, of ${task.user}, task ${task.rank}: ${task.paused ? "paused" : `${part}, ${used}`}`;
}

function updateBlock(block, task, node, scale) {
  const use = task.used_cores === null || task.share_cores <= 0 ? 0 : task.used_cores / task.share_cores;
  vars(block, { "--w": width(task.share_cores / scale), "--use": width(use), "--c": colourOf(task.job) });
  block.classList.toggle("paused", task.paused);
  block.classList.toggle("over", use > 1.05);
  attribute(block, "aria-label", describe(task, node));
  text(block.firstChild, task.paused ? "‖" : `${task.job} ${task.name}`);
  block.tip = () => describe(task, node);
}

function updateNode(row, node, state, act) {
  const { parts } = row, sum = node.tasks.reduce((total, task) => total + task.share_cores, 0);
  const scale = Math.max(node.cpus, sum, 1e-9), left = node.left_cores ?? node.cpus, free = Math.max(0, left - node.granted_cores);
  row.dataset.state = node.state;
  text(parts.name, node.name);
  attribute(parts.name, "href", `#node=${encodeURIComponent(node.name)}`);
  attribute(parts.name, "title", node.host === node.name ? null : `on ${node.host}`);
  text(parts.sign, SIGN[node.state]);
  const away = state.cluster && (node.state === "silent" || node.state === "lost") ? ` for ${age(state.cluster.now - node.seen_at)}` : "";
  text(parts.words, node.state + away);
  attribute(parts.words, "title", MEANING[node.state]);
  keyed(parts.shares, node.tasks, (task) => `${task.job}.${task.rank}.${task.attempt}`, (task) => h("button", {
    class: "block", type: "button", tabindex: -1, "data-job": task.job,
  }, h("span")), (block, task) => updateBlock(block, task, node, scale));
  text(parts.free, node.state === "up" ? (free / node.cpus > 0.995 ? "free" : `${number(free)} free`) : "");
  parts.free.hidden = free / node.cpus < 0.2 + 0.08 * node.tasks.filter((task) => task.paused).length;
  const used = Math.max(0, node.memory_bytes - node.memory_free_bytes);
  vars(parts.memory, { "--w": width(used / node.memory_bytes) });
  attribute(parts.memory, "aria-label", `memory: ${bytesOf(used, node.memory_bytes)} in use`);
  text(parts.cpu, `used ${number(node.used_cores)} · granted ${number(node.granted_cores)}`);
  const others = node.outside_cores > NOTICEABLE * node.cpus;
  parts.others.hidden = !others;
  text(parts.others, others ? `others use ${number(node.outside_cores)}` : "");
  parts.left.hidden = node.left_cores === null;
  text(parts.left, node.left_cores === null ? "" : `${number(left)} left`);
  text(parts.ram, `of ${cores(node)} cores · ${bytesOf(used, node.memory_bytes)}`);
  text(parts.problem, [node.problem && `no jobs: ${node.problem}`, node.drain_reason && `drained: ${node.drain_reason}`, ...reserved(node)].filter(Boolean).join(" · "));
  text(parts.notes, node.notes.join(" · "));
  const { drained } = node;
  parts.button.hidden = state.me?.role !== "admin" || node.state === "lost";
  text(parts.button, drained ? "Undrain" : "Drain");
  attribute(parts.button, "aria-label", `${drained ? "Undrain" : "Drain"} ${node.name}`);
  parts.act = () => act(drained ? "undrain" : "drain", node);
}

/** When and why a node is, or will be, reserved. */
export const reserved = (node) => node.reservations.map((one) => `reserved ${date(one.start_at)} to ${date(one.end_at)}${one.reason && `: ${one.reason}`}`);

function createNode() {
  const parts = {
    name: h("a", { class: "name" }), sign: h("span", { class: "sign", "aria-hidden": "true" }), words: h("span"), problem: h("small", { class: "problem" }), notes: h("small", { class: "notes" }),
    shares: h("div", { class: "shares" }), free: h("span", { class: "free" }), memory: h("div", { class: "memory", role: "img" }, h("i")),
    cpu: h("span"), others: h("span", { class: "others", title: "What programs beside the cluster’s use of this node’s CPUs" }), left: h("span", { class: "others", title: "What they leave of this node for jobs, as the policy counts it" }), ram: h("span", { class: "quiet" }), act: null,
  };
  parts.button = h("button", { type: "button", on: { click: () => parts.act() } });
  const row = h("div", { class: "node", role: "listitem" },
    h("div", { class: "who" }, parts.name, h("span", { class: "state" }, parts.sign, parts.words), parts.problem, parts.notes),
    h("div", { class: "bars" }, h("div", { class: "track" }, parts.shares, parts.free), parts.memory),
    h("div", { class: "figures" }, parts.cpu, parts.others, parts.left, parts.ram), h("div", { class: "do" }, parts.button));
  row.parts = parts;
  return row;
}

const trouble = (node) => ({ silent: 0, unhealthy: 1, lost: 2, draining: 3 })[node.state] ?? 4;

/** Which nodes are drawn as bars: all of few; of many the one named, or those looked for, else those in trouble and the fullest. */
function choose(nodes, wanted) {
  const words = wanted.trim().toLowerCase(), named = nodes.filter((node) => node.name.toLowerCase() === words);
  if (named.length) return named;
  const found = words ? nodes.filter((node) => node.name.toLowerCase().includes(words)) : nodes;
  if (found.length <= DRAWN && (words || nodes.length <= DRAWN)) return found;
  const full = (node) => node.granted_cores / node.cpus;
  return [...found].sort((a, b) => trouble(a) - trouble(b) || full(b) - full(a) || (a.name < b.name ? -1 : 1)).slice(0, DRAWN_OF_MANY);
}

function noteOf(nodes, drawn, wanted) {
  if (!nodes.length) return "No nodes yet. On each machine that is to work: dfrs agent";
  if (drawn.length === nodes.length) return "";
  if (wanted && !drawn.length) return `No node's name contains “${wanted}”.`;
  const which = wanted ? `whose name contains “${wanted}”` : "drawn as bars: those in trouble first, then the fullest";
  return `${plural(drawn.length, "node")} of ${nodes.length} ${which}.`;
}

/**
 * @param {import("./store.js").Store} store
 * @param {{open: (job: number) => void, act: (verb: string, node: object) => void}} doing
 */
export function nodesView(store, { open, act }) {
  const list = $("node-list"), filter = $("node-filter");
  const grid = createGrid($("node-grid"), (name) => { filter.value = name; update(store.state); });
  roving(list, BLOCKS);
  list.addEventListener("click", (event) => {
    const block = event.target.closest(BLOCKS);
    if (block) open(Number(block.dataset.job));
  });
  const update = (state) => {
    const { nodes } = state, many = nodes.length > DRAWN, wanted = many ? filter.value.trim() : "";
    const drawn = choose(nodes, wanted);
    $("node-find").hidden = !many;
    $("node-grid").hidden = !many;
    if (many) grid(nodes, new Set(drawn.map((node) => node.name)));
    keyed(list, drawn, (node) => node.name, createNode, (row, node) => updateNode(row, node, state, act));
    oneStop(list, BLOCKS);
    text($("node-note"), noteOf(nodes, drawn, wanted));
  };
  filter.addEventListener("input", () => update(store.state));
  store.watch(["nodes", "me"], update);
}
