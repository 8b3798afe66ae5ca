// Pictures on canvases. Each pixel column stands for the instant of its middle.

const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 4838400];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function rgb(text) {
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

// Pixels are little-endian in every browser's machine: alpha, blue, green, red from the top.
const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
const mix = (a, b, share) => a.map((v, k) => Math.round(v * (1 - share) + b[k] * share));

function fit(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 800;
  canvas.style.height = height + "px";
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  return ratio;
}

function ticksOf(view, width) {
  const most = Math.max(2, Math.floor(width / 95)), length = view.to - view.from;
  const step = STEPS.find((s) => length / s <= most) || STEPS[STEPS.length - 1];
  const ticks = [];
  for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) ticks.push(t);
  return { ticks, step };
}

class Gantt {
  constructor(canvas, run, history) {
    Object.assign(this, { canvas, run, history, nodes: byNode(run, history.spans), focus: -1 });
    this.band = run.nodes <= 16 ? 26 : run.nodes <= 40 ? 15 : run.nodes <= 64 ? 11 : run.nodes <= 160 ? 7 : 4;
  }

  // Fill `ids` with the index of the span each pixel shows, -1 where nobody is.
  fill(view) {
    const { canvas, run, history } = this;
    this.ratio = fit(canvas, this.band * run.nodes);
    const width = canvas.width, height = canvas.height, spans = history.spans;
    const scale = width / (view.to - view.from), column = (t) => Math.ceil((t - view.from) * scale - 0.5);
    const ids = new Int32Array(width * height).fill(-1);
    this.ready = new Map();
    for (let n = 0; n < run.nodes; n++) {
      const { span, tasks } = this.nodes[n], entries = [], cuts = new Set();
      for (let k = 0; k < span.length; k++) {
        const s = spans[span[k]];
        if (s.begin >= view.to) break;
        if (s.end <= view.from) continue;
        const low = Math.max(0, column(s.begin)), high = Math.min(width, column(s.end));
        if (high <= low) continue;
        entries.push({ id: span[k], low, high, job: s.job, share: (run.jobs.need[s.job] * s.yield * tasks[k]) / (run.cpu[n] || 1) });
        if (s.ready > s.begin) this.ready.set(span[k], column(s.ready));
        cuts.add(low).add(high);
      }
      const top = Math.round((n * height) / run.nodes), bottom = Math.round(((n + 1) * height) / run.nodes);
      this.stack(ids, entries, [...cuts].sort((a, b) => a - b), width, top + (bottom - top > 4 ? 1 : 0), bottom);
    }
    this.ids = ids;
    this.view = view;
  }

  stack(ids, entries, cuts, width, top, bottom) {
    let active = [], next = 0;
    for (let c = 0; c + 1 < cuts.length; c++) {
      const from = cuts[c], to = cuts[c + 1];
      active = active.filter((e) => e.high > from);
      while (next < entries.length && entries[next].low <= from) active.push(entries[next++]);
      active.sort((a, b) => a.job - b.job);
      let sum = 0;
      for (const e of active) {
        const low = Math.round(sum * (bottom - top)), high = Math.min(bottom - top, Math.round((sum += e.share) * (bottom - top)));
        for (let y = low; y < high; y++) ids.fill(e.id, (bottom - 1 - y) * width + from, (bottom - 1 - y) * width + to);
      }
    }
  }

  paint() {
    const { canvas, run, history, ids, focus } = this, width = canvas.width, height = canvas.height;
    const idle = rgb(colour("--idle")), card = rgb(colour("--card"));
    const full = run.palette.map(rgb), plain = full.map(pixel), hatched = this.band >= 11, light = full.map((c) => pixel(mix(c, card, hatched ? 0.75 : 0.55)));
    const dim = full.map((c) => pixel(mix(c, idle, 0.82))), gap = pixel(idle), line = pixel(card);
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    const out = new Uint32Array(image.data.buffer), spans = history.spans, hatch = Math.round(3 * this.ratio);
    out.fill(gap);
    for (let y = 0, p = 0; y < height; y++)
      for (let x = 0; x < width; x++, p++) {
        const id = ids[p];
        if (id < 0) continue;
        const job = spans[id].job, c = run.jobs.colour[job];
        if (focus >= 0 && job !== focus) { out[p] = dim[c]; continue; }
        const ready = this.ready.get(id);
        out[p] = ready !== undefined && x < ready && (!hatched || (x + y) % (2 * hatch) < hatch) ? light[c] : plain[c];
      }
    if (this.band > 4)
      for (let n = 0; n < run.nodes; n++) {
        const row = Math.round((n * height) / run.nodes) * width;
        out.fill(line, row, row + width);
      }
    context.putImageData(image, 0, 0);
    this.shade(context);
  }

  // Nodes that are down, and hours.
  shade(context) {
    const { canvas, view, run, history } = this, scale = canvas.width / (view.to - view.from);
    context.fillStyle = colour("--quiet");
    context.globalAlpha = 0.35;
    for (const [node, from, to] of history.outages)
      context.fillRect((from - view.from) * scale, (node * canvas.height) / run.nodes, (to - from) * scale, canvas.height / run.nodes);
    context.globalAlpha = 0.13;
    for (const t of ticksOf(view, canvas.clientWidth).ticks) context.fillRect(Math.round((t - view.from) * scale), 0, 1, canvas.height);
    context.globalAlpha = 1;
  }

  // The span under a point of the page, and the node.
  at(x, y) {
    const column = Math.floor(x * this.ratio), row = Math.floor(y * this.ratio);
    if (column < 0 || row < 0 || column >= this.canvas.width || row >= this.canvas.height) return null;
    const id = this.ids[row * this.canvas.width + column];
    return { span: id < 0 ? null : this.history.spans[id], node: Math.floor((row * this.run.nodes) / this.canvas.height) };
  }
}

function drawAxis(canvas, view) {
  const ratio = fit(canvas, 22), context = canvas.getContext("2d");
  const { ticks, step } = ticksOf(view, canvas.clientWidth);
  context.scale(ratio, ratio);
  context.fillStyle = colour("--quiet");
  context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  for (const t of ticks) {
    const x = ((t - view.from) / (view.to - view.from)) * canvas.clientWidth, text = shortClock(t, step);
    const width = context.measureText(text).width;
    context.fillText(text, Math.min(Math.max(0, x - width / 2), canvas.clientWidth - width), 15);
  }
}

// Mean, least and greatest of a step function in each pixel column.
function columns(time, values, view, width) {
  const found = [], length = (view.to - view.from) / width;
  let k = 0, low = 0, high = values.length;
  while (low < high) { const m = (low + high) >> 1; if (time[m + 1] <= view.from) low = m + 1; else high = m; }
  k = low;
  for (let c = 0; c < width; c++) {
    const from = view.from + c * length, to = from + length;
    while (k < values.length && time[k + 1] <= from) k++;
    let sum = 0, weight = 0, least = Infinity, most = -Infinity;
    for (let i = k; i < values.length && time[i] < to; i++) {
      const part = Math.min(to, time[i + 1]) - Math.max(from, time[i]);
      if (part <= 0 || Number.isNaN(values[i])) continue;
      sum += part * values[i]; weight += part;
      least = Math.min(least, values[i]); most = Math.max(most, values[i]);
    }
    found.push(weight > 0 ? [sum / weight, least, most] : null);
  }
  return found;
}

function drawChart(canvas, time, series, view, options) {
  const height = options.height, ratio = fit(canvas, height), context = canvas.getContext("2d");
  const width = canvas.clientWidth, resampled = series.map((s) => columns(time, s.values, view, width));
  let top = options.top;
  if (!top) top = Math.max(1, ...resampled.flat().filter(Boolean).map((c) => c[2])) * 1.08;
  const y = (v) => height - 4 - (v / top) * (height - 12);
  context.scale(ratio, ratio);
  context.fillStyle = colour("--line");
  const marks = options.marks || [...new Set([0, Math.floor(top / 2.16), Math.floor(top / 1.08)])];
  for (const mark of marks) context.fillRect(0, Math.round(y(mark)), width, 1);
  series.forEach((s, k) => {
    const paint = colour(s.colour), points = resampled[k];
    context.fillStyle = paint;
    context.globalAlpha = 0.16;
    points.forEach((c, x) => c && context.fillRect(x, y(c[2]), 1, Math.max(0, y(c[1]) - y(c[2]))));
    context.globalAlpha = 1;
    context.strokeStyle = paint;
    context.lineWidth = s.thin ? 1 : 1.7;
    context.lineJoin = "round";
    context.beginPath();
    let pen = false;
    points.forEach((c, x) => { if (!c) { pen = false; return; } pen ? context.lineTo(x + 0.5, y(c[0])) : context.moveTo(x + 0.5, y(c[0])); pen = true; });
    context.stroke();
  });
  const names = canvas.parentElement.querySelector(".names");
  if (names)
    names.replaceChildren(...marks.map((mark) => {
      const name = document.createElement("span");
      name.textContent = options.text(mark);
      name.style.top = `${y(mark)}px`;
      return name;
    }));
}

function valueAt(time, values, t) {
  let low = 0, high = time.length;
  while (low < high) { const m = (low + high) >> 1; if (time[m] <= t) low = m + 1; else high = m; }
  return low > 0 && low <= values.length ? values[low - 1] : NaN;
}

// Complementary distribution of the stretch, both axes logarithmic.
function drawTail(place, stretches, bound) {
  const sorted = Array.from(stretches).filter((s) => s === s).sort((a, b) => a - b), n = sorted.length;
  if (!n) { place.textContent = "No job finished."; return; }
  const w = 520, h = 300, left = 46, base = h - 30, top = 14, right = w - 14;
  const most = Math.max(sorted[n - 1], bound || 1, 1.5) * 1.15, least = Math.min(1 / n, 0.5);
  const x = (s) => left + (Math.log(Math.max(s, 1)) / Math.log(most)) * (right - left);
  const y = (p) => top + (Math.log(p) / Math.log(least)) * (base - top);
  const svg = make("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": "distribution of the stretch" });
  for (let p = 1; p >= least * 0.999; p /= 10) {
    svg.append(make("line", { x1: left, x2: right, y1: y(p), y2: y(p), stroke: "var(--line)" }));
    svg.append(make("text", { x: left - 6, y: y(p) + 4, "text-anchor": "end" }, `${+(100 * p).toPrecision(3)} %`));
  }
  const marks = most > 200 ? [1] : [1, 2, 5];
  for (let d = 1; d < most; d *= 10) for (const m of marks) if (m * d <= most) {
    svg.append(make("line", { x1: x(m * d), x2: x(m * d), y1: top, y2: base, stroke: "var(--line)" }));
    svg.append(make("text", { x: x(m * d), y: base + 16, "text-anchor": "middle" }, (m * d).toLocaleString("en")));
  }
  let path = `M${x(sorted[0])} ${y(1)}`;
  sorted.forEach((s, k) => { path += `H${x(s).toFixed(1)}`; if (k + 1 < n) path += `V${y(1 - (k + 1) / n).toFixed(1)}`; });
  svg.append(make("path", { d: path, fill: "none", stroke: "var(--accent)", "stroke-width": 2.2, "stroke-linejoin": "round" }));
  svg.append(make("circle", { cx: x(sorted[n - 1]), cy: y(1 / n), r: 4.5, fill: "var(--red)" }));
  svg.append(make("text", { x: x(sorted[n - 1]) - 8, y: y(1 / n) - 7, "text-anchor": "end" }, `worst ${sorted[n - 1].toFixed(2)}`));
  if (bound) {
    svg.append(make("line", { x1: x(bound), x2: x(bound), y1: top, y2: base, stroke: "var(--red)", "stroke-dasharray": "4 3" }));
    svg.append(make("text", { x: x(bound) + 5, y: top + 9 }, "lower bound"));
  }
  svg.append(make("text", { x: (left + right) / 2, y: h - 1, "text-anchor": "middle" }, "stretch"));
  place.replaceChildren(svg);
}

// A job's life as a strip: as high as its yield, red while paused, grey while waiting.
function drawLife(place, life, jobColour) {
  const w = 476, h = 74, base = 56;
  const begin = life.length ? life[0][0] : 0, end = life.length ? life[life.length - 1][1] : 1;
  const x = (t) => ((t - begin) / (end - begin || 1)) * w;
  const svg = make("svg", { viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": "yield over the job's life" });
  const fills = make("defs", {}), pattern = make("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  pattern.append(make("rect", { width: 6, height: 6, fill: "var(--card)" }), make("rect", { width: 3, height: 6, fill: jobColour }));
  fills.append(pattern);
  svg.append(fills, make("rect", { x: 0, y: 6, width: w, height: base - 6, fill: "var(--idle)" }));
  const block = (from, to, high, fill) =>
    svg.append(make("rect", { x: x(from), y: base - high, width: Math.max(0.4, x(to) - x(from)), height: high, fill }));
  for (const [from, to, what, ready] of life) {
    if (what === "paused") block(from, to, 7, "var(--red)");
    else if (what === "waiting") block(from, to, 7, "var(--quiet)");
    else {
      const high = what * (base - 6), split = Math.min(to, Math.max(from, ready));
      if (split > from) block(from, split, high, "url(#hatch)");
      if (to > split) block(split, to, high, jobColour);
    }
  }
  svg.append(make("text", { x: 0, y: h - 4 }, clock(begin)), make("text", { x: w, y: h - 4, "text-anchor": "end" }, clock(end)));
  svg.append(make("text", { x: w / 2, y: h - 4, "text-anchor": "middle" }, "height: yield · hatched: penalty · red: paused · grey: waiting"));
  place.replaceChildren(svg);
}
