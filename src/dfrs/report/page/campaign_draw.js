// Pictures of means: curves with bands, and dots with intervals. A mark gets its place on the picture, and its node.

const COLOURS = 8, REACH = 26;
const polygon = (corners, turn, size, inner = size) => (r) => {
  const steps = inner === size ? corners : 2 * corners;
  const at = (k) => (k % 2 && inner !== size ? inner : size) * r;
  const point = (k) => [Math.cos, Math.sin].map((f) => (at(k) * f(((turn + (360 * k) / steps) * Math.PI) / 180)).toFixed(2)).join(" ");
  return `M${rowsOf(steps).map(point).join("L")}Z`;
};
const SHAPES = [
  (r) => `M${-r} 0A${r} ${r} 0 1 1 ${r} 0A${r} ${r} 0 1 1 ${-r} 0Z`, polygon(4, 45, 1.25), polygon(3, -90, 1.45), polygon(4, 0, 1.35),
  polygon(3, 90, 1.45), polygon(4, 0, 1.7, 0.6), polygon(6, 0, 1.15), polygon(5, -90, 1.6, 0.65),
];

// Colour and shape together tell 64 entries apart; dashes help from the ninth on.
const styleOf = (entry) => ({ colour: `var(--s${entry % COLOURS})`, shape: SHAPES[(entry + Math.floor(entry / COLOURS)) % SHAPES.length],
  dash: ["none", "6 3", "2 3"][Math.floor(entry / COLOURS) % 3] });
const marker = (entry, r) => make("path", { d: styleOf(entry).shape(r), fill: styleOf(entry).colour });

function swatch(entry, line) {
  const w = line ? 24 : 12, svg = make("svg", { class: "swatch", viewBox: `${-w / 2} -7 ${w} 14`, width: w, height: 14, "aria-hidden": true });
  if (line) svg.append(make("line", { x1: -12, x2: 12, y1: 0, y2: 0, stroke: styleOf(entry).colour, "stroke-width": 2, "stroke-dasharray": styleOf(entry).dash }));
  svg.append(marker(entry, 4.2));
  return svg;
}

const RULER = document.createElement("canvas").getContext("2d");
// As wide as the widest letters of a picture make it.
function textWidth(text) {
  RULER.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return RULER.measureText(text).width;
}

function chopped(text, width) {
  let kept = text;
  while (kept.length > 1 && textWidth(kept + "…") > width) kept = kept.slice(0, -1);
  return textWidth(text) <= width ? text : kept + "…";
}

function linearTicks(low, high, most) {
  const rough = (high - low) / most, ten = 10 ** Math.floor(Math.log10(rough));
  const step = ten * [1, 2, 5, 10].find((m) => m * ten >= rough * 0.999), ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(k * step || 0);
  return ticks;
}

function logTicks(low, high, most) {
  for (const parts of [[1, 2, 5], [1]]) {
    const ticks = [];
    for (let d = Math.floor(Math.log10(low)); d <= Math.log10(high); d++) for (const m of parts) ticks.push(m * 10 ** d);
    const inside = ticks.filter((t) => t >= low && t <= high);
    if (inside.length <= most || parts.length === 1) return inside.length > 1 ? inside : linearTicks(low, high, most);
  }
}

// What the values and their intervals span, with some room, from 0 where they come near it.
function rangeOf(marks, log) {
  const values = marks.flatMap((m) => [m.mean, m.low, m.high]).filter((v) => Number.isFinite(v) && (!log || v > 0));
  let low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!values.length) return [log ? 0.1 : 0, 1];
  if (log) return high > low ? [low / 1.08, high * 1.08] : [low / 1.5, high * 1.5];
  if (high === low) return low === 0 ? [0, 1] : [low - Math.abs(low) / 10, high + Math.abs(high) / 10];
  const room = (high - low) * 0.04;
  return [low >= 0 && high - low > 0.25 * high ? 0 : low - room, high + room];
}

// From values to pixels; what lies outside is drawn at the edge.
function scaleOf([low, high], log, from, to, most) {
  const f = log ? Math.log : (v) => v, a = f(low), b = f(high);
  const at = (v) => from + ((Math.min(Math.max(log && v <= 0 ? a : f(v), a), b) - a) / (b - a)) * (to - from);
  return { at, ticks: log ? logTicks(low, high, most) : linearTicks(low, high, most) };
}

const drawable = (mark, log) => Number.isFinite(mark.mean) && (!log || mark.mean > 0);
const isBounded = (mark) => Number.isFinite(mark.low) && Number.isFinite(mark.high);
const pathOf = (points) => points.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

function putMark(svg, mark, x, y, label) {
  const node = make("g", { class: "mark", role: "button", tabindex: -1, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, "aria-label": label });
  node.append(make("circle", { class: "ring", r: 9 }));
  if (Number.isFinite(mark.mean)) node.append(marker(mark.entry, 4.6));
  else node.append(make("path", { class: "cross", d: "M-4 -4L4 4M-4 4L4 -4" }));
  Object.assign(mark, { px: x, py: y, node });
  svg.append(node);
}

// Curves in `view.width` pixels; returns the marks drawn and where each curve ends.
function drawCurves(box, curves, view) {
  const { width, log, names } = view, height = Math.min(430, Math.max(270, Math.round(width * 0.45)));
  const shown = curves.map((c) => ({ entry: c.entry, marks: c.marks.filter((m) => drawable(m, log)) })).filter((c) => c.marks.length);
  const marks = shown.flatMap((c) => c.marks), top = 30, base = height - 42;
  const y = scaleOf(rangeOf(marks, log), log, base, top, Math.floor((base - top) / 34));
  const left = 12 + Math.max(...y.ticks.map((t) => textWidth(plain(t)))), right = width - (view.side ? 34 : 14);
  const xs = [...new Set(marks.map((m) => m.x))].sort((a, b) => a - b), span = xs.length > 1 ? [xs[0], xs[xs.length - 1]] : [xs[0] - 1, xs[0] + 1];
  const most = Math.max(2, Math.floor((right - left) / 46)), x = scaleOf(span, false, left + 10, right - 10, most);
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${view.yLabel} along ${view.xLabel}; arrow keys move from point to point, Enter shows its runs` });
  for (const t of y.ticks) {
    svg.append(make("line", { class: "grid", x1: left, x2: right, y1: y.at(t), y2: y.at(t) }));
    svg.append(make("text", { x: left - 7, y: y.at(t) + 4, "text-anchor": "end" }, plain(t)));
  }
  for (const t of xs.length <= most ? xs : x.ticks) svg.append(make("text", { x: x.at(t), y: base + 17, "text-anchor": "middle" }, plain(t)));
  svg.append(make("text", { x: 0, y: 12, class: "axis-name" }, chopped(view.yLabel, width)));
  svg.append(make("text", { x: right, y: height - 5, "text-anchor": "end", class: "axis-name" }, view.xLabel));
  const lines = make("g", {}), points = make("g", {}), ends = new Map();
  for (const { entry, marks: own } of shown) {
    const { colour, dash } = styleOf(entry), part = make("g", { "data-entry": entry }), bounded = own.filter(isBounded);
    const band = [...bounded.map((m) => [x.at(m.x), y.at(m.high)]), ...bounded.map((m) => [x.at(m.x), y.at(m.low)]).reverse()];
    if (bounded.length) part.append(make("path", { class: "band", d: pathOf(band) + "Z", fill: colour, stroke: bounded.length > 1 ? "none" : colour }));
    part.append(make("path", { class: "curve", d: pathOf(own.map((m) => [x.at(m.x), y.at(m.mean)])), stroke: colour, "stroke-dasharray": dash }));
    lines.append(part);
    const dots = make("g", { "data-entry": entry });
    for (const m of own)
      putMark(dots, m, x.at(m.x), y.at(m.mean), `${names[entry]}, ${view.xLabel} ${plain(m.x)}: ${figure(m.mean)} ${interval(m.low, m.high)}, ${several(m.count, "run")}`);
    points.append(dots);
    ends.set(entry, own[own.length - 1]);
  }
  svg.append(lines, points);
  box.replaceChildren(svg);
  return { svg, marks, ends, top, base };
}

// Names beside the ends of their curves, at least `step` apart, with a thin line back; those of hidden curves last.
function nameEnds(items, drawn, width) {
  const step = 21, high = drawn.base + 22, placed = [];
  const wanted = items.map(([entry, item]) => ({ entry, item, end: drawn.ends.get(entry) })).sort((a, b) => (a.end ? a.end.py : high) - (b.end ? b.end.py : high));
  wanted.forEach((w, k) => placed.push(Math.max(w.end ? w.end.py : high, k ? placed[k - 1] + step : drawn.top - 12)));
  for (let k = placed.length - 1, limit = high; k >= 0; limit = placed[k--] - step) placed[k] = Math.min(placed[k], limit);
  wanted.forEach(({ entry, item, end }, k) => {
    Object.assign(item.style, { left: `${width + 2}px`, top: `${placed[k]}px` });
    if (end) drawn.svg.prepend(make("path", { class: "leader", d: pathOf([[end.px + 7, end.py], [width - 12, placed[k]], [width, placed[k]]]), stroke: styleOf(entry).colour }));
  });
}

const figuresOf = (mark) => [figure(mark.mean), interval(mark.low, mark.high), `n ${WHOLE.format(mark.count)}`].filter(Boolean).join(" ");
const failuresOf = (mark) => (mark.failed ? ` · ${WHOLE.format(mark.failed)} failed` : "");

// A row for each mark, the best first: its name, dot and interval, and figures; in narrow boxes the words stand above.
function drawDots(box, marks, view) {
  const { width, log, names } = view;
  const words = marks.map((m) => figuresOf(m) + failuresOf(m));
  const nameWidth = Math.max(...marks.map((m) => textWidth(names[m.entry]))) + 26, wordWidth = Math.max(...words.map(textWidth)) + 16;
  const wide = width - nameWidth - wordWidth > 240, tight = nameWidth + wordWidth > width, high = wide ? 27 : tight ? 60 : 46, left = wide ? nameWidth : 12, right = width - (wide ? wordWidth : 12);
  const top = 26, base = top + high * marks.length, height = base + 24;
  const x = scaleOf(rangeOf(marks, log), log, left, right, Math.max(2, Math.floor((right - left) / 64)));
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${view.yLabel}; arrow keys move from dot to dot, Enter shows its runs` });
  for (const t of x.ticks) {
    svg.append(make("line", { class: "grid", x1: x.at(t), x2: x.at(t), y1: top, y2: base }));
    svg.append(make("text", { x: x.at(t), y: base + 16, "text-anchor": "middle" }, plain(t)));
  }
  svg.append(make("text", { x: 0, y: 12, class: "axis-name" }, chopped(view.yLabel, width)));
  marks.forEach((m, k) => {
    const y = top + k * high + (wide ? high / 2 : high - 13), line = wide ? y + 4 : y - 13, colour = styleOf(m.entry).colour;
    svg.append(make("text", { x: wide ? 0 : left - 8, y: tight ? line - 14 : line, class: "entry" }, chopped(names[m.entry], width - 8)));
    svg.append(make("text", { x: width - 2, y: line, "text-anchor": "end", class: m.failed ? "failed" : "" }, words[k]));
    if (isBounded(m) && drawable(m, log)) svg.append(make("line", { class: "whisker", x1: x.at(m.low), x2: x.at(m.high), y1: y, y2: y, stroke: colour }));
    putMark(svg, m, drawable(m, log) ? x.at(m.mean) : left, y, `${names[m.entry]}: ${words[k]}`);
  });
  box.replaceChildren(svg);
  return { svg, marks };
}

// The pointer and the keys lead to marks: `near` is told of the mark they are at, or of none, `open` of one chosen.
function bindMarks({ svg, marks }, near, open) {
  const far = (m, x, y) => Math.hypot(m.x === null ? 0 : m.px - x, m.py - y);
  const nearest = (event) => {
    const corner = svg.getBoundingClientRect(), x = event.clientX - corner.left, y = event.clientY - corner.top;
    const found = marks.reduce((best, m) => (best && far(best, x, y) <= far(m, x, y) ? best : m), null);
    return found && far(found, x, y) <= REACH ? found : null;
  };
  const next = (mark, key) => {
    const along = key === "ArrowLeft" || key === "ArrowRight", axis = along ? "px" : "py", sign = key === "ArrowLeft" || key === "ArrowUp" ? -1 : 1;
    const others = marks.filter((m) => (along ? m.entry === mark.entry : m.x === mark.x) && m !== mark)
      .map((m) => ({ m, step: sign * (m[axis] - mark[axis]) || 1e-9 * (marks.indexOf(m) - marks.indexOf(mark)) * sign }));
    return others.filter((o) => o.step > 0).sort((a, b) => a.step - b.step).map((o) => o.m)[0];
  };
  svg.addEventListener("pointermove", (event) => { const found = nearest(event); svg.style.cursor = found ? "pointer" : ""; near(found, event.clientX, event.clientY); });
  svg.addEventListener("pointerleave", () => near(null));
  svg.addEventListener("click", (event) => { const found = nearest(event); if (found) open(found); });
  marks.forEach((mark, k) => {
    mark.node.setAttribute("tabindex", k ? -1 : 0);
    mark.node.addEventListener("focus", () => { const at = mark.node.getBoundingClientRect(); near(mark, at.right, at.bottom); });
    mark.node.addEventListener("blur", () => near(null));
    mark.node.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(mark, true); return; }
      const other = event.key.startsWith("Arrow") && next(mark, event.key);
      if (!other) return;
      event.preventDefault();
      mark.node.setAttribute("tabindex", -1);
      other.node.setAttribute("tabindex", 0);
      other.node.focus();
    });
  });
}
