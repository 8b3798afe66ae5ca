// How one job fared since it first ran: its yield, its CPU and its memory, one below the other over the same time.

import { attribute, h, keyed, s, text } from "./dom.js";
import { bytes, clock, date, number, shortClock, shortDate, ticks } from "./format.js";

const WIDTH = 468;
const HEIGHT = 64;
const AXIS = 20;
const DAY_S = 86_400;
const GAP = 4; // times the usual distance of two points: farther apart, they are not joined

/** Lines of each panel, what was asked or granted first, what came of it on top of that. */
const PANELS = [
  { name: "Yield", words: (value) => number(value), most: 1,
    lines: [{ name: "granted", of: (point) => point.yield_granted }, { name: "received", of: (point) => point.yield_received }] },
  { name: "CPU, cores", words: (value) => number(value),
    lines: [{ name: "need", of: (point, job) => point.need_cores * job.tasks }, { name: "used", of: (point) => point.used_cores }] },
  { name: "Memory", words: bytes,
    lines: [{ name: "asked", of: (_, job) => job.memory_bytes * job.tasks }, { name: "used", of: (point) => point.used_bytes }] },
];

function pathOf(points, of, x, y, gap) {
  let path = "", last = null;
  for (const point of points) {
    const value = of(point);
    if (value !== null) path += `${last !== null && point.time - last < gap ? "L" : "M"}${x(point.time).toFixed(1)} ${y(value).toFixed(1)}`;
    last = value === null ? null : point.time;
  }
  return path;
}

function panel({ name, words, most, lines }) {
  const key = h("figcaption"), svg = s("svg", { class: "fared", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}` }), node = h("figure", {}, key, svg);
  node.update = (points, job, x, gap) => {
    const values = lines.map(({ of }) => points.map((point) => of(point, job)).filter((value) => value !== null));
    const top = most ?? Math.max(1e-9, ...values.flat()) * 1.05, y = (value) => 2 + (1 - Math.min(1, value / top)) * (HEIGHT - 4);
    const now = lines.map(({ of }) => of(points.at(-1), job));
    key.replaceChildren(h("b", {}, name), ...lines.map((line, k) => h("span", { class: k ? "got" : "given" }, `${line.name} ${words(now[k])}`)));
    svg.replaceChildren(...lines.map(({ of }, k) => s("path", { class: k ? "line least" : "line given", d: pathOf(points, (point) => of(point, job), x, y, gap) })));
    const range = (some) => (some.length ? `${words(Math.min(...some))} to ${words(Math.max(...some))}` : "not measured");
    attribute(svg, "aria-label", `${name}: ${lines.map((line, k) => `${line.name} ${range(values[k])}`).join(", ")}`);
  };
  return node;
}

/** @returns {{node: Element, update: (points: object[], job: object, now: number) => void}} */
export function jobChart() {
  const axis = s("svg", { class: "fared-axis", "aria-hidden": "true", viewBox: `0 0 ${WIDTH} ${AXIS}` }), words = h("p", { class: "quiet" }), panels = h("div");
  const node = h("section", { hidden: true }, h("h3", {}, "How it fared"), panels, axis, words);

  const update = (kept, job, now) => {
    // What is kept of a long time is far apart: the present is the job's own.
    const points = job.ended_at === null ? [...kept, { ...job, time: now }] : kept;
    node.hidden = job.started_at === null;
    const some = points.length > 1;
    [panels.hidden, axis.hidden] = [!some, !some];
    if (!some) return text(words, job.ended_at === null ? "The first points come some seconds after its start." : "Too little is known: it ran for a moment only, ended long ago, or ran before the controller was started.");
    const from = points[0].time, to = Math.max(points.at(-1).time, job.ended_at ?? now), span = to - from, x = (time) => ((time - from) / Math.max(1e-9, span)) * WIDTH;
    const gap = GAP * Math.max(...points.slice(-3).map((point, k, last) => (k ? point.time - last[k - 1].time : 0)), span / points.length);
    const mark = span < 600 ? clock : span < DAY_S ? shortClock : shortDate, whole = span < DAY_S ? clock : date;
    keyed(panels, PANELS, (each) => each.name, panel, (figure) => figure.update(points, job, x, gap));
    axis.replaceChildren(...ticks(from, to, 5).map((time) => s("text", { x: Math.min(WIDTH - 28, Math.max(28, x(time))), y: 14, "text-anchor": "middle" }, mark(time))));
    text(words, `${whole(from)} to ${whole(to)}. Thin: what it was granted, needs, or asked for.`);
  };
  return { node, update };
}
