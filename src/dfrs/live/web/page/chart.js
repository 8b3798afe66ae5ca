// Minimum and median yield, the bound and Jain's index over time: lines told apart by weight and dashes, named at their ends.

import { $, attribute, h, keyed, s, say, text } from "./dom.js";
import { clock, date, firstTime, number, shortClock, ticks } from "./format.js";
import { hideTip, showTip } from "./tip.js";

const HEIGHT = 230;
const TOP = 12;
const BOTTOM = 26;
const LEFT = 44;
const LINE_PX = 15;
const GAP_S = 0.06; // of the range: farther apart, points are not joined
const LINES = [
  { key: "bound", name: "best possible", short: "best", kind: "bound" },
  { key: "jain", name: "Jain’s index", short: "Jain", kind: "jain" },
  { key: "median_yield", name: "median", short: "median", kind: "median" },
  { key: "minimum_yield", name: "minimum", short: "least", kind: "least" },
];

const y = (value) => TOP + (1 - Math.min(1, Math.max(0, value))) * (HEIGHT - TOP - BOTTOM);

/** Runs of points that have a value and are close enough to be joined. */
function runs(points, has, gap) {
  const found = [];
  let run = [];
  for (const point of points) {
    if (run.length && (!has(point) || point.time - run.at(-1).time > gap)) { found.push(run); run = []; }
    if (has(point)) run.push(point);
  }
  if (run.length) found.push(run);
  return found;
}

const join = (points) => points.map(([a, b], k) => `${k ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

/** Heights for the labels at the ends of lines, moved apart so that none covers another. */
function spread(labels) {
  labels.sort((a, b) => a.at - b.at);
  for (let k = 1; k < labels.length; k++) labels[k].at = Math.max(labels[k].at, labels[k - 1].at + LINE_PX);
  const over = (labels.at(-1)?.at ?? 0) - (HEIGHT - BOTTOM);
  if (over > 0) for (let k = labels.length - 1, limit = HEIGHT - BOTTOM; k >= 0; k--, limit -= LINE_PX) labels[k].at = Math.min(labels[k].at, limit);
  return labels;
}

/** The history up to the snapshot that the page shows. */
function upToNow({ points, cluster }) {
  const { jobs } = cluster, sum = (states) => states.reduce((total, state) => total + (jobs[state] ?? 0), 0);
  const { minimum_yield, median_yield, jain, bound, used_cores, now: time } = cluster, running = sum(["running", "starting"]);
  const last = { time, minimum_yield, median_yield, jain, bound, used_cores, running, waiting: sum(["pending", "held", "waiting"]) };
  return [...points.filter((point) => point.time < time), last];
}

const summary = (point) => LINES.map(({ key, name }) => `${name} ${number(point[key])}`).reverse();

function axes(view, width, right) {
  const parts = [];
  for (const value of [0, 0.25, 0.5, 0.75, 1])
    parts.push(s("line", { class: "rule", x1: LEFT, x2: right, y1: y(value), y2: y(value) }),
      s("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, value === 0 || value === 1 ? String(value) : value.toFixed(2)));
  for (const time of ticks(view.from, view.to, Math.max(2, Math.floor((right - LEFT) / 80))))
    parts.push(s("line", { class: "tick", x1: view.x(time), x2: view.x(time), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }),
      s("text", { x: view.x(time), y: HEIGHT - 6, "text-anchor": "middle" }, view.to - view.from < 600 ? clock(time) : shortClock(time)));
  return parts;
}

function table(points) {
  const every = Math.max(1, Math.ceil(points.length / 24)), few = points.filter((_, k) => (points.length - 1 - k) % every === 0).reverse();
  const head = ["Time", "Minimum", "Median", "Best possible", "Jain’s index", "Running", "Waiting"];
  return h("table", { class: "plain" }, h("thead", {}, h("tr", {}, ...head.map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, ...few.map((p) => h("tr", {}, h("th", { scope: "row" }, clock(p.time)),
      ...[number(p.minimum_yield), number(p.median_yield), number(p.bound), number(p.jain), String(p.running), String(p.waiting)].map((cell) => h("td", {}, cell))))));
}

/** @param {import("./store.js").Store} store */
export function chartView(store) {
  const root = $("chart"), empty = h("p", { class: "empty" }, "The history begins with the first jobs. It appears here after some seconds.");
  const svg = s("svg", { tabindex: 0, role: "application", "aria-roledescription": "line chart", height: HEIGHT });
  const back = s("g"), gain = s("path", { class: "gain" }), front = s("g"), ends = s("g"), cross = s("g", { class: "cross", visibility: "hidden" });
  svg.append(back, gain, front, ends, cross);
  root.append(svg, empty);
  let view = null, points = [], at = -1;

  const draw = (state) => {
    points = upToNow(state);
    empty.hidden = points.length > 1;
    svg.toggleAttribute("hidden", points.length < 2);
    if (points.length < 2 || !root.clientWidth) return;
    const width = root.clientWidth, narrow = width < 600, right = width - (narrow ? 92 : 128), to = state.cluster.now, from = firstTime(to, state.range, points.slice(0, 1).map((point) => point.time));
    view = { from, to, right, x: (time) => LEFT + ((Math.max(from, time) - from) / (to - from)) * (right - LEFT) };
    const gap = Math.max(60, GAP_S * (to - from)), has = (key) => (point) => point[key] !== null;
    attribute(svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    attribute(svg, "width", width);
    back.replaceChildren(...axes(view, width, right));
    const both = runs(points, (p) => p.bound !== null && p.minimum_yield !== null, gap);
    attribute(gain, "d", both.map((run) => join([...run.map((p) => [view.x(p.time), y(p.bound)]),
      ...run.toReversed().map((p) => [view.x(p.time), y(Math.min(p.bound, p.minimum_yield))])]) + "Z").join(""));
    keyed(front, LINES, (line) => line.key, (line) => s("path", { class: `line ${line.kind}` }), (path, { key }) =>
      attribute(path, "d", runs(points, has(key), gap).map((run) => join(run.map((p) => [view.x(p.time), y(p[key])]))).join("")));
    const last = points.at(-1), labels = spread(LINES.filter(({ key }) => last[key] !== null).map((line) => ({ ...line, at: y(last[line.key]) })));
    ends.replaceChildren(...labels.map(({ key, name, short, kind, at: height }) =>
      s("text", { class: `end ${kind}`, x: right + 8, y: height + 4 }, s("tspan", { class: "value" }, number(last[key])), s("tspan", { dx: 5 }, narrow ? short : name))));
    attribute(svg, "aria-label", `Yield from ${date(Math.max(from, points[0].time))} to now; now ${summary(last).join(", ")}; arrow keys move`);
    if (at >= 0) mark(Math.min(at, points.length - 1), false);
    if ($("chart-table").open) $("chart-table").lastElementChild.replaceChildren(table(points));
  };

  const mark = (k, tell) => {
    at = k;
    const point = points[k], x = view.x(point.time);
    attribute(cross, "visibility", "visible");
    cross.replaceChildren(s("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
      ...LINES.filter(({ key }) => point[key] !== null).map(({ key, kind }) => s("circle", { class: kind, cx: x, cy: y(point[key]), r: 3.5 })));
    if (!tell) return;
    const box = svg.getBoundingClientRect();
    showTip(box.left + x, box.top + TOP + 30, clock(point.time), [...summary(point), `${point.running} running, ${point.waiting} waiting`, `${number(point.used_cores, 1)} cores in use`]);
  };
  const clear = () => { at = -1; attribute(cross, "visibility", "hidden"); hideTip(); };
  const point = (event) => {
    if (!view) return;
    const time = view.from + ((event.clientX - svg.getBoundingClientRect().left - LEFT) / (view.right - LEFT)) * (view.to - view.from);
    let best = 0;
    points.forEach((p, k) => { if (Math.abs(p.time - time) < Math.abs(points[best].time - time)) best = k; });
    mark(best, true);
  };
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && clear());
  svg.addEventListener("blur", clear);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (!step || !view) return;
    event.preventDefault();
    const next = Math.min(points.length - 1, Math.max(0, (at < 0 ? points.length - 1 : at) + step));
    mark(next, true);
    say(`${clock(points[next].time)}: ${summary(points[next]).join(", ")}`);
  });
  $("chart-table").addEventListener("toggle", () => draw(store.state));
  store.watch(["points", "cluster", "range"], (state) => state.cluster && draw(state));
  new ResizeObserver(() => store.state.cluster && draw(store.state)).observe(root);
  text($("chart-table").firstElementChild, "The same as a table");
}
