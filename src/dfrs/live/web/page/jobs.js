// The table of jobs, a page of it at a time, and the queue. At phone width rows become cards (see parts.css).

import { $, attribute, h, keyed, text, unseen, vars } from "./dom.js";
import { PAGE } from "./feed.js";
import { bytes, bytesOf, count, duration, names, need, number, plural } from "./format.js";
import { colourOf } from "./palette.js";

export const SIGNS = {
  pending: "◌", held: "◇", waiting: "○", starting: "◔", running: "●", paused: "‖", ending: "◕", done: "✓", failed: "✕", cancelled: "⊘",
};
const ENDED = new Set(["done", "failed", "cancelled"]);
const COLUMNS = ["Job", "User", "State", "Tasks", "Need, cores", "Yield", "Memory", "Nodes", "Age", "Why"];
/** How each column is sorted at first; then the other way round, then not at all. */
const SORTS = { Job: "job", User: "user", State: "state", Tasks: "-tasks", "Need, cores": "-need", Yield: "yield", Memory: "-memory", Age: "-age" };
const turned = (sort) => (sort.startsWith("-") ? sort.slice(1) : `-${sort}`);
const WITH_ENDED = new Set(["ended", "failed", "all"]);
const QUEUE = ["Job", "User", "State", "Waits", "Asks for", "Why"];
const QUEUE_DRAWN = 12;
const classOf = (name) => `c-${/^\w+/.exec(name)[0].toLowerCase()}`;
const percent = (value) => `${100 * Math.min(1, Math.max(0, value ?? 0))}%`;

/** A job's number and name, as a link that opens it. */
function link() {
  const number = h("b"), name = h("span", { class: "job-name" });
  const node = h("a", { class: "job" }, h("i", { "aria-hidden": "true" }), number, " ", name);
  node.update = (job) => {
    attribute(node, "href", `#job=${job.id}`);
    attribute(node, "title", job.command.join(" "));
    vars(node, { "--c": colourOf(job.id) });
    text(number, String(job.id));
    text(name, job.name);
  };
  return node;
}

/** A state as sign and word. */
export function stateOf() {
  const sign = h("span", { class: "sign", "aria-hidden": "true" }), word = h("span");
  const node = h("span", { class: "state" }, sign, word);
  node.update = (state) => {
    node.dataset.state = state;
    text(sign, SIGNS[state] ?? "·");
    text(word, state);
  };
  return node;
}

/** What a job receives, with its error bar; before that is measured, what it was granted. */
function yieldOf() {
  const kind = unseen(""), shown = h("b"), beside = h("small"), bars = h("span", { class: "two", "aria-hidden": "true" }, h("i"), h("i"));
  const node = h("span", { class: "yield" }, bars, h("span", { class: "numbers" }, kind, shown, " ", beside));
  node.update = (job) => {
    const { yield_granted: granted, yield_received: received } = job, measured = received !== null;
    bars.hidden = granted === null;
    vars(bars, { "--received": percent(received), "--granted": percent(granted), "--floor": percent(job.minimum_yield) });
    bars.classList.toggle("floor", job.minimum_yield > 0);
    text(kind, measured ? "received " : "");
    text(shown, number(measured ? received : granted));
    text(beside, measured ? `± ${number(job.yield_received_error)}` : granted === null ? "" : "granted");
    attribute(node, "title", granted === null ? null : measured ? `received; ${number(granted)} granted${job.apart ? `: ${job.apart}` : ""}` : "granted; what it receives is not measured yet");
  };
  return node;
}

/** The name of a column, as a button where it can be sorted. */
function heading(name, sort) {
  const button = sort ? h("button", { type: "button", class: "sort", on: { click: () => sort(name) } }, name) : name;
  return h("th", { scope: "col", role: "columnheader", class: classOf(name) }, button);
}

function table(root, columns, label, sort = null) {
  const body = h("tbody", { role: "rowgroup" });
  const heads = columns.map((name) => heading(name, name in SORTS ? sort : null)), head = h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...heads));
  const node = h("table", { role: "table", class: sort ? "jobs sortable" : "jobs", "aria-label": label }, head, body), empty = h("p", { class: "empty", hidden: true });
  root.append(h("div", { class: "scroll" }, node), empty);
  return { node, body, empty, heads };
}

/** A row whose cells are filled by `update(cells, job)`. `parts` are elements for some cells, by column. */
function row(columns, parts) {
  const cells = columns.map((name) => h("td", { role: "cell", "data-label": name, class: classOf(name) }, parts[name] ?? null));
  const node = h("tr", { role: "row" }, ...cells);
  node.parts = parts;
  node.columns = Object.fromEntries(columns.map((name, k) => [name, cells[k]]));
  return node;
}

function updateJob(node, job, state) {
  const { columns: cells, parts } = node, ended = ENDED.has(job.state), now = state.cluster.now;
  for (const part of ["Job", "Yield"]) parts[part].update(job);
  parts.State.update(job.state);
  node.classList.toggle("on", state.selected === job.id);
  text(cells.User, job.user);
  text(cells.Tasks, count(job.tasks));
  text(cells["Need, cores"], need(job));
  text(cells.Memory, job.used_bytes === null ? bytes(job.memory_bytes) : bytesOf(job.used_bytes, job.memory_bytes * job.tasks));
  text(cells.Nodes, names(job.nodes, 1) || "–");
  attribute(cells.Nodes, "title", job.nodes.length > 1 ? names(job.nodes, 40) : null);
  text(cells.Age, duration((ended ? job.ended_at ?? now : now) - job.submitted_at));
  text(cells.Why, ended ? job.exit || job.why : job.why);
}

function updateWaiting(node, job, state) {
  const { columns: cells, parts } = node;
  parts.Job.update(job);
  parts.State.update(job.state);
  text(cells.User, job.user);
  text(cells.Waits, duration(state.cluster.now - job.submitted_at));
  text(cells["Asks for"], `${plural(job.tasks, "task")} of ${need(job)} cores, ${bytes(job.memory_bytes)}`);
  text(cells.Why, job.why);
}

function openOnClick(root, open) {
  root.addEventListener("click", (event) => {
    const link = event.target.closest("tr")?.querySelector("a.job");
    if (!link || getSelection().toString()) return;
    event.preventDefault();
    open(Number(link.hash.slice("#job=".length)));
  });
}

/** @param {import("./store.js").Store} store @param {(job: number) => void} open */
export function queueView(store, open) {
  const parts = table($("queue-list"), QUEUE, "Queue"), more = h("p", { class: "quiet" });
  $("queue-list").append(more);
  openOnClick(parts.body, open);
  store.watch(["queue", "cluster"], (state) => {
    if (!state.cluster) return;
    const { queue } = state, { jobs } = state.cluster, all = Math.max(queue.length, (jobs.waiting ?? 0) + (jobs.held ?? 0) + (jobs.pending ?? 0));
    const make = () => row(QUEUE, { Job: link(), State: stateOf() });
    keyed(parts.body, queue.slice(0, QUEUE_DRAWN), (job) => job.id, make, (node, job) => updateWaiting(node, job, state));
    parts.node.hidden = !queue.length;
    parts.empty.hidden = queue.length > 0;
    text(parts.empty, "Nobody waits.");
    const rest = all - Math.min(queue.length, QUEUE_DRAWN);
    text(more, rest <= 0 ? "" : `and ${plural(rest, "more job")}; the table above shows them all: State “not ended”.`);
  });
}

/** @param {import("./store.js").Store} store @param {(job: number) => void} open @param {() => void} ask */
export function jobsView(store, open, ask) {
  const parts = table($("job-table"), COLUMNS, "Jobs", (name) => {
    const first = SORTS[name], { sort } = store.state.asked;
    go({ sort: sort === first ? turned(first) : sort === turned(first) ? null : first, skip: 0, before: null, newer: [] });
  });
  const newer = h("button", { type: "button" }, "‹ newer"), older = h("button", { type: "button" }, "older ›"), where = h("span", { class: "quiet" });
  $("job-pages").append(newer, where, older);
  openOnClick(parts.body, open);
  const go = (patch) => { store.set({ asked: { ...store.state.asked, ...patch } }); ask(); };

  older.addEventListener("click", () => {
    const { asked, jobs } = store.state;
    go(asked.sort ? { skip: asked.skip + PAGE } : { before: jobs.at(-1).id, newer: [...asked.newer, asked.before] });
  });
  newer.addEventListener("click", () => {
    const { asked } = store.state;
    go(asked.sort ? { skip: Math.max(0, asked.skip - PAGE) } : { before: asked.newer.at(-1) ?? null, newer: asked.newer.slice(0, -1) });
  });
  const choose = () => {
    const states = $("job-states").value;
    go({ states, user: $("job-user").value.trim(), before: null, newer: [], skip: 0, sort: WITH_ENDED.has(states) ? null : store.state.asked.sort });
  };
  $("job-states").addEventListener("change", choose);
  $("job-user").addEventListener("change", choose);
  $("job-filter").addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = $("job-number").value.trim();
    if (/^[1-9]\d{0,14}$/.test(wanted)) open(Number(wanted));
    else choose();
  });

  store.watch(["jobs", "asked", "selected", "cluster"], (state) => {
    if (!state.cluster) return;
    if (!state.jobs.length && state.asked.skip) return go({ skip: Math.max(0, state.asked.skip - PAGE) }); // there are fewer than before
    const { jobs, asked } = state, plain = asked.states === "placed" && !asked.user;
    const make = () => row(COLUMNS, { Job: link(), State: stateOf(), Yield: yieldOf() });
    keyed(parts.body, jobs, (job) => job.id, make, (node, job) => updateJob(node, job, state));
    parts.node.hidden = !jobs.length;
    parts.empty.hidden = jobs.length > 0;
    text(parts.empty, plain ? "No job is on a node now. To submit one: dfrs submit -- ./prog" : "No jobs like these. Choose another state or user.");
    parts.heads.forEach((head, k) => {
      const sorted = asked.sort !== null && asked.sort.replace("-", "") === SORTS[COLUMNS[k]]?.replace("-", ""), button = head.querySelector("button");
      attribute(head, "aria-sort", sorted ? (asked.sort.startsWith("-") ? "descending" : "ascending") : null);
      if (button) [button.disabled, button.title] = [WITH_ENDED.has(asked.states), WITH_ENDED.has(asked.states) ? "Jobs that have ended are listed by number" : `Sort by ${COLUMNS[k].toLowerCase()}`];
    });
    newer.hidden = !asked.newer.length && !asked.skip;
    older.hidden = jobs.length < PAGE;
    text(newer, asked.sort ? "‹ previous" : "‹ newer");
    text(older, asked.sort ? "next ›" : "older ›");
    const there = !newer.hidden || !older.hidden, [first, last] = asked.sort ? [asked.skip + 1, asked.skip + jobs.length] : [jobs.at(-1)?.id ?? "", jobs[0]?.id ?? ""];
    text(where, there ? `${asked.sort ? "" : "jobs "}${first} to ${last}` : "");
  });
}
