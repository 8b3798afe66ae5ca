// Everything about one node: what it has and gives, who has a part of it now, and who had one before.

import { attribute, h, keyed, s, text } from "./dom.js";
import { bytesOf, clock, date, firstTime, number, plural } from "./format.js";
import { MEANING, SIGN, reserved } from "./nodes.js";
import { colourOf } from "./palette.js";
import { stack } from "./stack.js";

const LANE = { width: 468, height: 84 };
const COLUMNS = ["Job", "Task", "User", "Granted", "Used"];

function facts(node) {
  const used = Math.max(0, node.memory_bytes - node.memory_free_bytes), cores = (value) => (value === null ? null : `${number(value)} cores`);
  const all = [
    ["Cores", number(node.cpus, Number.isInteger(node.cpus) ? 0 : 2)], ["Granted to jobs", cores(node.granted_cores)], ["Used by jobs", cores(node.used_cores)],
    ["Used by others", cores(node.outside_cores)], ["Left by others", cores(node.left_cores)], ["Memory in use", bytesOf(used, node.memory_bytes)],
    ["Shares CPU by", node.shares], ["Limits CPU", node.caps ? "yes" : "no"], ["A pause frees memory", node.pause_frees_memory ? "yes" : "no"],
    ["Host", node.host === node.name ? null : node.host], ["Last seen", date(node.seen_at)],
    ["Agent", node.version ? `dfrs ${node.version}${node.connected ? "" : ", not connected"}` : null],
  ];
  return all.filter(([, value]) => value !== null).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
}

function tasks() {
  const body = h("tbody"), head = h("thead", {}, h("tr", {}, ...COLUMNS.map((name) => h("th", { scope: "col" }, name))));
  const empty = h("p", { class: "quiet" }, "No job has a part of it."), table = h("table", { class: "plain" }, head, body);
  const create = () => h("tr", {}, h("th", { scope: "row" }, h("a")), ...COLUMNS.slice(1).map(() => h("td")));
  const fill = (row, task) => {
    const [job, ...cells] = row.children;
    attribute(job.firstChild, "href", `#job=${task.job}`);
    text(job.firstChild, `${task.job} ${task.name}`);
    [String(task.rank), task.user, task.paused ? "paused" : number(task.share_cores), number(task.used_cores)].forEach((words, k) => text(cells[k], words));
  };
  const update = (list) => {
    [table.hidden, empty.hidden] = [!list.length, list.length > 0];
    keyed(body, list, (task) => `${task.job}.${task.rank}.${task.attempt}`, create, fill);
  };
  return { node: h("div", { class: "scroll" }, table, empty), update };
}

/** The node's band of the diagram of all nodes. */
function lane() {
  const svg = s("svg", { class: "lane", role: "img", viewBox: `0 0 ${LANE.width} ${LANE.height}` }), words = h("p", { class: "quiet" });
  const update = (bars, cpus, now, range) => {
    const from = firstTime(now, range, bars.map((bar) => bar.begin)), x = (time) => ((time - from) / (now - from)) * LANE.width;
    const blocks = stack(bars, cpus, from, now), jobs = new Set(bars.map((bar) => bar.job)).size;
    svg.replaceChildren(...blocks.map(({ bar, begin, end, low, high }) => s("rect", {
      class: bar.paused ? "paused" : null, fill: colourOf(bar.job), x: x(begin), width: Math.max(0.5, x(end) - x(begin)),
      y: (1 - high) * LANE.height, height: (high - low) * LANE.height,
    }, s("title", {}, `job ${bar.job} · ${bar.name}`))));
    attribute(svg, "aria-label", `${plural(jobs, "job")} had a part of it since ${clock(from)}`);
    text(words, `${clock(from)} to ${clock(now)}: ${plural(jobs, "job")}. Pale: paused.`);
  };
  return { node: h("section", {}, h("h3", {}, "Who had which part of it"), svg, words), update };
}

/**
 * What the drawer shows of a node.
 * @param {string} name
 * @param {import("./store.js").Store} store
 * @param {(verb: string, node: object) => Promise<boolean>} act
 * @returns {import("./drawer.js").Details}
 */
export function nodeDetails(name, store, act) {
  const title = h("h2", { id: "drawer-title", tabindex: -1 }, name), state = h("p", { class: "quiet" }), why = h("p", { class: "why" }), list = h("dl");
  const now = tasks(), before = lane(), button = h("button", { type: "button", on: { click: () => verb && act(verb, one) } });
  const parts = [state, why, h("div", { class: "answers" }, button), list, h("section", {}, h("h3", {}, "Tasks"), now.node), before.node];
  const node = h("div", { class: "details" }, h("div", { class: "head" }, title), ...parts);
  let one = null, verb = null;

  const update = ({ nodes, bars, cluster, range, me }) => {
    one = nodes.find((other) => other.name === name) ?? null;
    text(title, one === null ? `There is no node ${name}.` : name);
    if (one === null) {
      for (const part of parts) part.remove(); // until it comes, or comes back
      return true;
    }
    if (!node.contains(state)) node.append(...parts);
    text(state, `${SIGN[one.state]} ${one.state}: ${MEANING[one.state]}`);
    text(why, [one.problem, one.drain_reason && `drained: ${one.drain_reason}`, ...reserved(one), ...one.notes].filter(Boolean).join(" · "));
    verb = me?.role !== "admin" || one.state === "lost" ? null : one.drained ? "undrain" : "drain";
    button.hidden = verb === null;
    text(button, verb === "undrain" ? "Undrain" : "Drain");
    list.replaceChildren(...facts(one));
    now.update(one.tasks);
    before.update(bars.filter((bar) => bar.node === name), one.cpus, cluster.now, range);
    return true;
  };
  return { node, update, stop: () => {} };
}
