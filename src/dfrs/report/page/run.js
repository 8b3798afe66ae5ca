// The page: figures, linked views of one part of the run, table, stories.

const run = readRun();
const past = replay(run);
const gantt = new Gantt($("gantt"), run, past);
const whole = { from: run.begin, to: run.end };
let view = { from: Math.max(run.begin, run.busy[0]), to: Math.min(run.end, run.busy[1]) };
let chosen = -1, drawn = 0, wide = true;

const percent = (v) => `${(100 * v).toFixed(0)} %`;
const charts = [
  { id: "yields", legend: "yield-legend", data: run.timeline.yields, top: 1, marks: [0, 0.5, 1], text: (v) => v.toFixed(1),
    series: [["median", "--teal"], ["minimum", "--accent"]], show: (v) => v.toFixed(3) },
  { id: "use", legend: "use-legend", data: run.timeline.levels, top: 1, marks: [0, 0.5, 1], text: percent,
    series: [["cpu", "--green", "CPU"], ["memory", "--amber"], ["idle", "--red", "CPU in penalties", true]], show: percent },
  { id: "counts", legend: "counts-legend", data: run.timeline.levels, text: (v) => `${v}`,
    series: [["running", "--accent"], ["paused", "--red"], ["waiting", "--amber"]], show: (v) => v.toFixed(0) },
];

function setView(from, to) {
  const least = Math.min(1, run.end - run.begin), length = Math.min(Math.max(to - from, least), run.end - run.begin);
  const start = Math.min(Math.max(from, run.begin), run.end - length);
  view = { from: start, to: start + length };
  if (!drawn) drawn = requestAnimationFrame(() => { drawn = 0; draw(); });
}

function zoom(factor, centre) {
  const middle = centre === undefined ? (view.from + view.to) / 2 : centre;
  setView(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
}

function draw() {
  gantt.fill(view);
  gantt.paint();
  drawAxis($("axis"), view);
  drawAxis($("axis2"), view);
  for (const chart of charts)
    drawChart($(chart.id), chart.data.time, chart.series.map(([name, tone, , thin]) => ({ values: chart.data[name], colour: tone, thin })), view,
      { height: 120, top: chart.top, marks: chart.marks, text: chart.text });
  const box = $("overview"), offset = box.offsetLeft, scale = box.clientWidth / (run.end - run.begin);
  $("brush").style.left = `${offset + (view.from - run.begin) * scale}px`;
  $("brush").style.width = `${(view.to - view.from) * scale}px`;
}

function drawOverview() {
  const levels = run.timeline.levels;
  drawChart($("overview"), levels.time, [{ values: levels.cpu, colour: "--green", thin: true }], whole, { height: 40, top: 1, marks: [0] });
}

function nameNodes() {
  const step = [1, 2, 4, 8, 16, 32, 64, 128].find((s) => s * gantt.band >= 18) || 128;
  for (let n = 0; n < run.nodes; n += step) {
    const name = document.createElement("span");
    name.textContent = n;
    name.style.top = `${(n + 0.5) * gantt.band}px`;
    $("node-names").append(name);
  }
}

// ---- the pointer

const timeAt = (event, canvas) => {
  const box = canvas.getBoundingClientRect();
  return view.from + ((event.clientX - box.left) / box.width) * (view.to - view.from);
};

function cursor(event, canvas) {
  const box = canvas.getBoundingClientRect(), t = timeAt(event, canvas);
  for (const line of document.querySelectorAll(".cursor")) {
    line.style.left = `${canvas.offsetLeft + event.clientX - box.left}px`;
    line.style.opacity = 0.7;
  }
  legends(t);
}

function legends(t) {
  for (const chart of charts) {
    $(chart.legend).replaceChildren(...chart.series.map(([name, tone, label]) => {
      const item = document.createElement("span"), mark = document.createElement("i"), value = document.createElement("b");
      const now = t === undefined ? NaN : valueAt(chart.data.time, chart.data[name], t);
      mark.style.background = `var(${tone})`;
      value.textContent = Number.isNaN(now) ? "" : chart.show(now);
      item.append(mark, `${label || name} `, value);
      return item;
    }));
  }
}

function leave() {
  for (const line of document.querySelectorAll(".cursor")) line.style.opacity = 0;
  legends();
  $("tip").hidden = true;
  focus(chosen);
}

function focus(job) {
  if (gantt.focus === job) return;
  gantt.focus = job;
  gantt.paint();
}

function tip(event, found, t) {
  const box = $("tip"), { span } = found;
  box.hidden = !span;
  if (!span) return;
  const j = span.job, jobs = run.jobs, log = run.events, why = log.reasons[log.why[span.row]];
  const lines = [
    `${jobs.tasks[j]} ${jobs.tasks[j] > 1 ? "tasks" : "task"}, CPU ${+jobs.need[j].toFixed(3)}, memory ${+jobs.memory[j].toFixed(3)}`,
    `nodes ${nodeText(run, span.row)}`,
    t < span.ready ? `in its penalty until ${clock(span.ready)}` : `at this yield from ${clock(span.begin)} to ${clock(span.end)}`,
    `${run.actions[log.action[span.row]]} at ${clock(log.time[span.row])}${why ? ": " + why : ""}`,
    `${clock(t)}, node ${found.node}`,
  ];
  const title = document.createElement("b"), rest = document.createElement("em");
  title.textContent = `job ${jobs.id[j]} · yield ${span.yield.toFixed(3)}`;
  rest.innerText = lines.map((line) => (line.length > 110 ? line.slice(0, 107) + "…" : line)).join("\n");
  box.replaceChildren(title, document.createElement("br"), rest);
  const left = event.clientX + 16 + box.offsetWidth > innerWidth ? event.clientX - 16 - box.offsetWidth : event.clientX + 16;
  const top = Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8);
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${top}px`;
}

function bindGantt() {
  const canvas = gantt.canvas;
  let drag = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const move = ((event.deltaX || event.deltaY) / canvas.clientWidth) * (view.to - view.from);
      setView(view.from + move, view.to + move);
    } else zoom(Math.exp(event.deltaY * 0.0015), timeAt(event, canvas));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, view: { ...view }, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    cursor(event, canvas);
    if (drag) {
      const move = ((drag.x - event.clientX) / canvas.clientWidth) * (drag.view.to - drag.view.from);
      drag.moved = drag.moved || Math.abs(event.clientX - drag.x) > 3;
      if (drag.moved) { canvas.classList.add("drag"); $("tip").hidden = true; setView(drag.view.from + move, drag.view.to + move); return; }
    }
    const found = gantt.at(event.offsetX, event.offsetY);
    if (!found) return;
    tip(event, found, timeAt(event, canvas));
    focus(found.span ? found.span.job : chosen);
  });
  canvas.addEventListener("pointerup", (event) => {
    canvas.classList.remove("drag");
    const clicked = drag && !drag.moved ? gantt.at(event.offsetX, event.offsetY) : null;
    drag = null;
    if (clicked && clicked.span) location.hash = `job=${run.jobs.id[clicked.span.job]}`;
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("dblclick", () => setView(run.begin, run.end));
  canvas.addEventListener("keydown", (event) => {
    const step = (view.to - view.from) / 5;
    const act = { ArrowLeft: () => setView(view.from - step, view.to - step), ArrowRight: () => setView(view.from + step, view.to + step),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6) }[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  for (const chart of charts) {
    $(chart.id).addEventListener("pointermove", (event) => cursor(event, $(chart.id)));
    $(chart.id).addEventListener("pointerleave", leave);
  }
}

function bindOverview() {
  const canvas = $("overview");
  let from = null;
  const at = (event) => run.begin + (event.offsetX / canvas.clientWidth) * (run.end - run.begin);
  canvas.addEventListener("pointerdown", (event) => { from = at(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => { if (from !== null && Math.abs(at(event) - from) * canvas.clientWidth > 4 * (run.end - run.begin)) setView(Math.min(from, at(event)), Math.max(from, at(event))); });
  canvas.addEventListener("pointerup", (event) => {
    const to = at(event), length = view.to - view.from;
    if (Math.abs(to - from) * canvas.clientWidth <= 4 * (run.end - run.begin)) setView(to - length / 2, to + length / 2);
    from = null;
  });
  for (const button of document.querySelectorAll("[data-zoom]"))
    button.addEventListener("click", () => ({ in: () => zoom(0.6), out: () => zoom(1 / 0.6), all: () => setView(run.begin, run.end),
      busy: () => setView(...run.busy) })[button.dataset.zoom]());
}

// ---- the table

const HEADINGS = [
  ["job", (j) => run.jobs.id[j], (v) => v], ["stretch", (j) => run.jobs.stretch[j], (v) => (v === v ? v.toFixed(2) : "not finished")],
  ["submitted", (j) => run.jobs.submit[j], clock], ["waited", (j) => run.jobs.start[j] - run.jobs.submit[j], (v) => (v === v ? clock(v) : "")],
  ["flow time", (j) => run.jobs.finish[j] - run.jobs.submit[j], (v) => (v === v ? clock(v) : "")],
  ["work", (j) => run.jobs.run[j], clock], ["tasks", (j) => run.jobs.tasks[j], (v) => v], ["CPU", (j) => run.jobs.need[j], (v) => +v.toFixed(3)],
  ["memory", (j) => run.jobs.memory[j], (v) => +v.toFixed(3)], ["pauses", (j) => run.jobs.pauses[j], (v) => v || ""],
  ["moves", (j) => run.jobs.migrations[j], (v) => v || ""],
];
let order = { by: 1, down: true, rows: 25 };

function fillTable() {
  const head = document.createElement("tr");
  HEADINGS.forEach(([name], k) => {
    const cell = document.createElement("th"), button = document.createElement("button");
    button.type = "button";
    button.textContent = name + (order.by === k ? (order.down ? " ↓" : " ↑") : "");
    cell.className = order.by === k ? "by" : "";
    cell.scope = "col";
    if (order.by === k) cell.setAttribute("aria-sort", order.down ? "descending" : "ascending");
    button.addEventListener("click", () => {
      order = { by: k, down: order.by === k ? !order.down : k > 0, rows: order.rows };
      fillTable();
      document.querySelectorAll("#jobs th button")[k].focus(); // the one that had the focus is gone
    });
    cell.append(button);
    head.append(cell);
  });
  document.querySelector("#jobs thead").replaceChildren(head);
  const value = HEADINGS[order.by][1], sign = order.down ? -1 : 1;
  const rank = Array.from({ length: run.count }, (_, j) => j).sort((a, b) => {
    const x = value(a), y = value(b);
    return (x !== x) - (y !== y) || sign * (x - y) || a - b;
  });
  document.querySelector("#jobs tbody").replaceChildren(...rank.slice(0, order.rows).map((j) => {
    const row = document.createElement("tr");
    row.className = j === chosen ? "on" : "";
    HEADINGS.forEach(([name, get, show]) => {
      const cell = document.createElement("td");
      if (name === "job") {
        const link = document.createElement("a");
        link.href = `#job=${get(j)}`;
        link.textContent = get(j);
        link.style.setProperty("--c", run.palette[run.jobs.colour[j]]);
        cell.append(link);
      } else cell.textContent = show(get(j));
      row.append(cell);
    });
    row.addEventListener("click", () => { location.hash = `job=${run.jobs.id[j]}`; });
    return row;
  }));
  $("more").hidden = order.rows >= run.count;
}

// ---- stories

// Beside a story the page is narrower, and drawn anew.
function widen(told) {
  if (document.body.classList.toggle("told", told) !== wide) return;
  wide = !told;
  drawOverview();
  draw();
}

function showStory(j) {
  chosen = j;
  const jobs = run.jobs, [summary, ...steps] = run.stories[j], life = past.lives[j];
  $("story").hidden = false;
  widen(true);
  $("story").scrollTop = 0;
  $("story-title").textContent = `Job ${jobs.id[j]}`;
  $("story-summary").textContent =
    `${jobs.tasks[j]} ${jobs.tasks[j] > 1 ? "tasks" : "task"}, CPU need ${+jobs.need[j].toFixed(3)} and memory ${+jobs.memory[j].toFixed(3)} each` +
    `${jobs.user[j] >= 0 ? `, user ${jobs.user[j]}` : ""}; ${summary}.`;
  drawLife($("life"), life, run.palette[jobs.colour[j]]);
  $("steps").replaceChildren(...steps.map(([time, action, virtual, text]) => {
    const item = document.createElement("li"), when = document.createElement("time"), what = document.createElement("span"), show = document.createElement("button");
    const flow = time - jobs.submit[j], stretch = virtual > 0 ? ` · stretch so far ${(flow / virtual).toFixed(2)}` : "";
    item.className = run.steps[action];
    show.textContent = `${clock(time)} · ${+time.toFixed(1)} s · virtual ${clock(virtual)}${stretch}`;
    show.title = "show in the diagram";
    show.type = "button";
    when.append(show);
    show.addEventListener("click", () => { const half = (view.to - view.from) / 2; setView(time - half, time + half); });
    for (const part of text.split(/(\bjobs? \d+)/)) {
      const other = part.match(/^jobs? (\d+)$/);
      if (!other) { what.append(part); continue; }
      const link = document.createElement("a");
      link.href = `#job=${other[1]}`;
      link.textContent = part;
      what.append(link);
    }
    item.append(when, what);
    return item;
  }));
  focus(j);
  if (life.length && (life[0][0] > view.to || life[life.length - 1][1] < view.from)) {
    const margin = (life[life.length - 1][1] - life[0][0]) * 0.15 + 60;
    setView(life[0][0] - margin, life[life.length - 1][1] + margin);
  }
  fillTable();
}

function closeStory() {
  chosen = -1;
  $("story").hidden = true;
  widen(false);
  history.replaceState(null, "", location.pathname + location.search);
  focus(-1);
  fillTable();
}

function goTo(text) {
  const wanted = Number(text.replace(/^job\s*/, "")), j = text.trim() === "" ? undefined : run.indexOf.get(wanted);
  if (j !== undefined) { $("search-answer").textContent = ""; showStory(j); return; }
  const near = [...run.jobs.id].sort((a, b) => Math.abs(a - wanted) - Math.abs(b - wanted)).slice(0, 4).sort((a, b) => a - b);
  $("search-answer").textContent = `no job ${text}; the nearest ids are ${near.join(", ")}`;
}

function followHash() {
  const match = location.hash.match(/^#job=(.+)$/);
  if (match) goTo(decodeURIComponent(match[1]));
}

function begin() {
  $("policy").textContent = run.policy;
  $("subtitle").textContent = `${run.workload}: ${run.count.toLocaleString("en")} jobs on ${run.nodes} nodes in ${clock(run.end - run.begin)}` +
    `${run.complete ? "" : " · interrupted: the log ends early"}${run.refused ? ` · ${run.refused} jobs refused` : ""}`;
  $("tiles").replaceChildren(...run.tiles.map(([name, figure, note]) => {
    const tile = document.createElement("div"), parts = ["span", "b", "small"].map((tag) => document.createElement(tag));
    tile.className = "tile";
    [name, figure, note].forEach((text, k) => { parts[k].textContent = text; });
    tile.append(...parts);
    return tile;
  }));
  $("metrics").tBodies[0].replaceChildren(...Object.entries(run.metrics).map(([name, value]) => {
    const row = document.createElement("tr");
    for (const text of [name, value === null ? "–" : typeof value === "number" ? +value.toPrecision(6) : JSON.stringify(value)]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      row.append(cell);
    }
    return row;
  }));
  nameNodes();
  legends();
  fillTable();
  drawTail($("tail"), run.jobs.stretch, run.bound);
  drawOverview();
  draw();
  bindGantt();
  bindOverview();
  $("more").addEventListener("click", () => { order.rows += 100; fillTable(); });
  $("search").addEventListener("submit", (event) => { event.preventDefault(); const id = $("wanted").value.trim(); location.hash = `job=${id}`; goTo(id); });
  $("close").addEventListener("click", closeStory);
  addEventListener("keydown", (event) => { if (event.key === "Escape" && chosen >= 0) closeStory(); });
  addEventListener("hashchange", followHash);
  addEventListener("resize", () => { drawOverview(); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawOverview(); draw(); });
  followHash();
  document.documentElement.dataset.ready = "yes";
}

begin();
