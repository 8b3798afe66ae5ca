// Who had which part of which node: a band a node, in it each job as high as its share at that time.

import { $, attribute, h, s, say, text, vars } from "./dom.js";
import { clock, firstTime, number, plural, shortClock, ticks } from "./format.js";
import { colourOf, inkOn, themed } from "./palette.js";
import { stack } from "./stack.js";
import { hideTip, showTip } from "./tip.js";

const AXIS = 24;
const MOST_LANES = 40;
const HATCH_PX = 4;
const NAMED_PX = 240;

const heightOf = (lanes) => (lanes <= 6 ? 52 : lanes <= 10 ? 40 : lanes <= 20 ? 26 : 18);

/** The nodes that are drawn, by name, and their blocks. */
function lanesOf(state, from, to) {
  const byNode = new Map(state.nodes.map((node) => [node.name, { name: node.name, cpus: node.cpus, bars: [] }]));
  for (const bar of state.bars) {
    if (!byNode.has(bar.node)) byNode.set(bar.node, { name: bar.node, cpus: null, bars: [] });
    byNode.get(bar.node).bars.push(bar);
  }
  const all = [...byNode.values()], busy = all.filter((lane) => lane.bars.length);
  const few = (all.length <= MOST_LANES ? all : busy.sort((a, b) => b.bars.length - a.bars.length).slice(0, MOST_LANES));
  few.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const lanes = few.map((lane) => {
    const cpus = lane.cpus ?? Math.max(...lane.bars.map((bar) => bar.share_cores), 1e-9);
    return { ...lane, cpus, blocks: stack(lane.bars, cpus, from, to) };
  });
  return { lanes, all: all.length };
}

function hatch(context, colour, ground, ratio) {
  const tile = document.createElement("canvas"), size = HATCH_PX * 2 * ratio;
  tile.width = tile.height = size;
  const inner = tile.getContext("2d");
  inner.fillStyle = ground;
  inner.fillRect(0, 0, size, size);
  inner.strokeStyle = colour;
  inner.lineWidth = HATCH_PX * ratio * 0.8;
  for (const shift of [-size, 0, size]) {
    inner.beginPath();
    inner.moveTo(shift - size, size * 2);
    inner.lineTo(shift + size * 2, -size);
    inner.stroke();
  }
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

function describe(block, lane) {
  const { bar } = block, share = bar.paused ? "paused" : `${number(bar.share_cores)} of ${number(lane.cpus, 0)} cores`;
  return [`job ${bar.job} · ${bar.name}`, [`${share} on ${lane.name}`, `task ${bar.rank} of ${bar.user}`,
    `${clock(bar.begin)} to ${bar.end === null ? "now" : clock(bar.end)}`]];
}

/** @param {import("./store.js").Store} store @param {(job: number) => void} open */
export function ganttView(store, open) {
  const labels = h("div", { class: "lane-names", "aria-hidden": "true" });
  const canvas = h("canvas", { tabindex: 0, role: "application", "aria-roledescription": "diagram of nodes over time" });
  const axis = s("svg", { class: "time-axis", height: AXIS, "aria-hidden": "true" });
  $("gantt-plot").append(labels, h("div", { class: "lanes" }, canvas, axis));
  let view = null, lanes = [], at = null;

  const draw = (state) => {
    const width = canvas.parentElement.clientWidth, to = state.cluster.now, from = firstTime(to, state.range, state.bars.map((bar) => bar.begin));
    if (!width) return;
    const found = lanesOf(state, from, to);
    lanes = found.lanes;
    view = { from, to, width, band: heightOf(lanes.length), x: (time) => ((time - from) / (to - from)) * width };
    labels.replaceChildren(...lanes.map(({ name }) => h("span", { title: name }, name)));
    vars(labels, { "--band": `${view.band}px` });
    paint();
    const times = ticks(from, to, Math.max(2, Math.floor(width / 80)));
    attribute(axis, "width", width);
    axis.replaceChildren(...times.map((time) => s("text", { x: Math.min(width - 16, Math.max(16, view.x(time))), y: 16, "text-anchor": "middle" }, to - from < 600 ? clock(time) : shortClock(time))));
    const busy = lanes.some((lane) => lane.blocks.length);
    attribute(canvas, "aria-label", `${plural(lanes.length, "node")} over time; arrow keys move, Enter opens a job`);
    text($("gantt-note"), !found.all ? "" : !busy ? "Nothing ran in this time. A first job: dfrs submit -- ./prog"
      : lanes.length < found.all ? `${lanes.length} of ${found.all} nodes are drawn: those on which most happened.` : "");
  };

  const paint = () => {
    const ratio = devicePixelRatio || 1, { width, band } = view, height = Math.max(1, band * lanes.length);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    vars(canvas, { height: `${height}px` });
    const context = canvas.getContext("2d"), card = themed("--card"), hatches = new Map();
    context.scale(ratio, ratio);
    context.fillStyle = themed("--idle");
    context.fillRect(0, 0, width, height);
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "middle";
    lanes.forEach((lane, k) => {
      const named = new Map(); // where a job's number was last written: not at every change of its share
      for (const block of lane.blocks) fillBlock(context, block, boxOf(block, k), hatches, card, ratio, named);
      context.fillStyle = card;
      context.fillRect(0, k * band, width, 2);
    });
    context.fillStyle = themed("--rule");
    for (const time of ticks(view.from, view.to, Math.max(2, Math.floor(width / 80)))) context.fillRect(Math.round(view.x(time)), 0, 1, height);
    if (at && document.activeElement === canvas) outline(context);
  };

  const boxOf = (block, lane) => {
    const room = view.band - 2, bottom = (lane + 1) * view.band, x = view.x(block.begin);
    return { x, y: bottom - block.high * room, w: Math.max(1, view.x(block.end) - x), h: Math.max(1, (block.high - block.low) * room) };
  };

  const fillBlock = (context, block, box, hatches, card, ratio, named) => {
    const { job, paused } = block.bar, colour = colourOf(job);
    if (paused && !hatches.has(colour)) hatches.set(colour, hatch(context, colour, card, ratio));
    context.fillStyle = paused ? hatches.get(colour) : colour;
    context.fillRect(box.x, box.y, box.w, box.h);
    if (!paused && box.h > 3) {
      context.fillStyle = card;
      context.fillRect(box.x, box.y, box.w, 0.75);
    }
    const words = String(job);
    if (paused || box.h < 13 || box.w < 14 + 7 * words.length || box.x - (named.get(job) ?? -Infinity) < NAMED_PX) return;
    named.set(job, box.x);
    context.fillStyle = inkOn(colour);
    context.fillText(words, Math.max(box.x, 0) + 5, box.y + box.h / 2 + 0.5);
  };

  const outline = (context) => {
    const lane = lanes[at.lane], block = lane?.blocks[at.block];
    if (!block) return;
    const box = boxOf(block, at.lane);
    context.strokeStyle = themed("--ink");
    context.lineWidth = 2.5;
    context.strokeRect(box.x + 1, box.y + 1, Math.max(2, box.w - 2), Math.max(2, box.h - 2));
  };

  const find = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, k = Math.floor((event.clientY - box.top) / view.band);
    const high = 1 - (event.clientY - box.top - k * view.band - 2) / (view.band - 2), time = view.from + (x / view.width) * (view.to - view.from);
    const block = lanes[k]?.blocks.find((one) => one.begin <= time && time < one.end && one.low <= high && high <= one.high);
    return block ? { block, lane: lanes[k] } : null;
  };
  const hover = (event) => {
    const hit = view && find(event);
    canvas.classList.toggle("hit", Boolean(hit));
    if (hit) showTip(event.clientX, event.clientY, ...describe(hit.block, hit.lane));
    else hideTip();
  };
  canvas.addEventListener("pointermove", hover);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", (event) => {
    const hit = find(event);
    if (event.pointerType === "touch") hover(event);
    else if (hit) open(hit.block.bar.job);
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const here = at && lanes[at.lane]?.blocks[at.block];
    if (event.key === "Enter" && here) open(here.bar.job);
    if (!steps || !lanes.length) return;
    event.preventDefault();
    at = at ? step(at, steps) : { lane: Math.max(0, lanes.findIndex((lane) => lane.blocks.length)), block: 0 };
    const lane = lanes[at.lane], block = lane.blocks[at.block];
    paint();
    if (!block) { hideTip(); say(`${lane.name}: nothing ran`); return; }
    const frame = canvas.getBoundingClientRect(), box = boxOf(block, at.lane), [title, lines] = describe(block, lane);
    showTip(frame.left + Math.max(0, box.x), frame.top + box.y + box.h - 12, title, lines);
    say([title, ...lines].join(", "));
  });
  const step = (from, [down, along]) => {
    const lane = Math.min(lanes.length - 1, Math.max(0, from.lane + down)), last = Math.max(0, lanes[lane].blocks.length - 1);
    return { lane, block: Math.min(last, Math.max(0, down ? from.block : from.block + along)) };
  };
  canvas.addEventListener("blur", () => { hideTip(); if (view) paint(); });
  store.watch(["bars", "nodes", "range", "theme"], (state) => state.cluster && draw(state));
  new ResizeObserver(() => store.state.cluster && draw(store.state)).observe(canvas.parentElement);
}
