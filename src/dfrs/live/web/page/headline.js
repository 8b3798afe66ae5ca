// The figures of the cluster: first the minimum yield beside the best possible, then what explains it.

import { $, h, text, vars, visible } from "./dom.js";
import { count, duration, number, plural } from "./format.js";

const LIVE_STATES = ["running", "starting"];
const ASIDE = { waiting: ["waits", "wait"], pending: ["is pending", "are pending"], held: ["is held", "are held"], paused: ["is paused", "are paused"] };
const WAITING_STATES = ["waiting", "pending", "held"];

const sum = (counts, states) => states.reduce((total, state) => total + (counts[state] ?? 0), 0);

function tile(name, help) {
  const value = h("b", {}, "–"), small = h("small");
  const node = h("div", { class: "tile", title: help }, h("span", {}, name), value, small);
  return { node, value, small };
}

function hero() {
  const value = h("b", {}, "–"), beside = h("p", { class: "beside" }), aside = h("p", { class: "aside" });
  const scale = h("div", { class: "scale", role: "img" }, h("i", { class: "gain" }), h("i", { class: "least" }), h("i", { class: "bound" }), h("i", { class: "middle" }));
  const key = h("p", { class: "scale-key", "aria-hidden": "true" }, h("span", {}, "0"), h("span", {}, h("em", { class: "least" }, "minimum"), h("em", { class: "bound" }, "best possible"), h("em", { class: "middle" }, "median")), h("span", {}, "1"));
  const node = h("div", { class: "hero" }, h("h2", {}, "Minimum yield"), h("div", { class: "hero-line" }, value, beside), aside, scale, key);
  return { node, value, beside, aside, scale };
}

/** A policy's name, which may be folded after its slashes. */
const foldable = (name) => name.split(/(?<=\/)/).flatMap((part, k) => (k ? [h("wbr"), part] : [part]));

/** Where several controllers may be: that this one leads, and how many wait. */
const standbys = (waiting) => (waiting === null || waiting === undefined ? "" : ` · leader, ${waiting ? plural(waiting, "standby", "standbys") : "no standby"}`);

function besideOf(cluster) {
  const { minimum_yield: least, bound } = cluster;
  if (least === null) return "no job runs";
  if (bound === null) return "best possible: not known yet";
  const part = bound > 0 ? ` · ${Math.min(100, Math.round((100 * least) / bound))} % of it` : "";
  return `best possible ${number(bound)}${part}`;
}

/** Of how many jobs the figures are, and how many jobs have no yield. */
function asideOf({ jobs, unmeasured }) {
  const without = Object.entries(ASIDE).filter(([state]) => jobs[state]).map(([state, [one, many]]) => `${count(jobs[state])} ${jobs[state] === 1 ? one : many}`);
  const granted = unmeasured ? [`${count(unmeasured)} as granted, not measured yet`] : [];
  const running = sum(jobs, LIVE_STATES);
  return [running ? `of ${plural(running, "job")} on nodes` : null, ...granted, without.join(", ")].filter(Boolean).join("; ");
}

/** @param {import("./store.js").Store} store */
export function headline(store) {
  const main = hero(), tiles = {
    median: tile("Median yield", "Half of the jobs that run receive at least this yield"),
    jain: tile("Jain’s index", "1: all jobs that run receive the same yield"),
    nodes: tile("Nodes up", "Nodes that take jobs"),
    cpu: tile("CPU in use", "Cores used in the last seconds"),
    running: tile("Jobs running", "Jobs that have a part of the cluster"),
    waiting: tile("Jobs waiting", "Jobs that hold nothing yet"),
    policy: tile("Policy", "Who decides, and how needs are found"),
    shadow: tile("Shadow", "A second policy that decides without acting"),
  };
  tiles.policy.node.classList.add("words");
  tiles.shadow.node.classList.add("words");
  $("headline").append(main.node, ...Object.values(tiles).map((one) => one.node));

  const set = (one, value, small) => { text(one.value, value); text(one.small, small); };

  store.watch(["cluster", "nodes"], ({ cluster }) => {
    if (!cluster) return;
    const { jobs, nodes } = cluster, all = Object.values(nodes).reduce((a, b) => a + b, 0), up = nodes.up ?? 0;
    text(main.value, number(cluster.minimum_yield));
    text(main.beside, besideOf(cluster));
    text(main.aside, asideOf(cluster));
    const at = (value) => `${100 * Math.min(1, Math.max(0, value ?? 0))}%`;
    vars(main.scale, { "--least": at(cluster.minimum_yield), "--bound": at(cluster.bound ?? cluster.minimum_yield), "--median": at(cluster.median_yield) });
    main.scale.classList.toggle("none", cluster.minimum_yield === null);
    main.scale.setAttribute("aria-label", `minimum ${number(cluster.minimum_yield)}, best possible ${number(cluster.bound)}, median ${number(cluster.median_yield)}`);
    set(tiles.median, number(cluster.median_yield), "half have more");
    set(tiles.jain, number(cluster.jain, 3), "1 is equal for all");
    const trouble = ["draining", "silent", "unhealthy", "lost"].filter((state) => nodes[state]).map((state) => `${nodes[state]} ${state}`);
    set(tiles.nodes, `${count(up)} of ${count(all)}`, trouble.join(", ") || (all ? "all well" : "none yet"));
    tiles.nodes.node.classList.toggle("alarm", trouble.length > 0);
    set(tiles.cpu, cluster.cpus ? `${Math.round((100 * cluster.used_cores) / cluster.cpus)} %` : "–", `${cluster.cpus < 100 ? number(cluster.used_cores, 1) : count(cluster.used_cores)} of ${count(cluster.cpus)} cores`);
    set(tiles.running, count(sum(jobs, LIVE_STATES)), [jobs.paused ? `and ${count(jobs.paused)} paused` : "none paused", jobs.ending ? `, ${count(jobs.ending)} ending` : ""].join(""));
    const held = jobs.held ? `, ${count(jobs.held)} held` : "";
    set(tiles.waiting, count(sum(jobs, WAITING_STATES)), `${count(jobs.waiting ?? 0)} in the queue${held}`);
    if (tiles.policy.value.textContent !== cluster.policy) tiles.policy.value.replaceChildren(...foldable(cluster.policy));
    text(tiles.policy.small, cluster.discovery);
    set(tiles.shadow, cluster.shadow === null ? "none" : count(cluster.shadow_differs),
      cluster.shadow === null ? "start with --shadow" : `of ${plural(cluster.decisions, "decision")} otherwise: ${cluster.shadow}`);
    text($("cluster-name"), cluster.name);
    text($("subtitle"), `dfrs ${cluster.version}${standbys(cluster.standbys)} · up ${duration(cluster.now - cluster.started_at)} · last decision took ${Math.round(cluster.decision_s * 1000)} ms`);
    document.title = `${number(cluster.minimum_yield)} · ${visible(cluster.name)} · dfrs`;
  });
}
