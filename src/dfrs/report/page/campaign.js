// The page: what is picked, its picture, the runs behind a mean, and the tables.

const page = readCampaign();
const { runs } = page;
const picked = { measure: 0, group: 0, log: false };
const hidden = new Set();
const failed = rowsOf(runs.count).filter((k) => runs.failed(k) !== null);
const along = page.x;
let drawn = null, opened = null, sought = null;

const measure = () => page.measures[picked.measure];
const direction = () => (measure().better === "high" ? -1 : 1);
const inGroup = () => (page.groups.length > 1 ? ` · ${page.groups[picked.group]}` : "");

// ---- the picture

function hover(mark, x, y) {
  const box = $("tip");
  for (const m of drawn.marks) m.node.classList.toggle("near", m === mark);
  fade(mark ? mark.entry : -1);
  box.hidden = !mark;
  if (!mark) return;
  const lines = [`mean ${figure(mark.mean)}${measure().unit ? " " + measure().unit : ""}`];
  if (isBounded(mark)) lines.push(`95 % interval ${interval(mark.low, mark.high)}`);
  lines.push(`n = ${several(mark.count, "run")}${failuresOf(mark)}`, "click or Enter: these runs");
  if (mark.x !== null) lines.unshift(`${along} ${plain(mark.x)}`);
  const words = element("em", "", ...lines.flatMap((line) => [line, element("br")]));
  box.replaceChildren(element("b", "", page.entries[mark.entry]), element("br"), words);
  const left = x + 16 + box.offsetWidth > innerWidth ? x - 16 - box.offsetWidth : x + 16;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, Math.min(y + 14, innerHeight - box.offsetHeight - 8))}px`;
}

function fade(entry) {
  for (const part of drawn.svg.querySelectorAll("[data-entry]")) part.classList.toggle("faded", entry >= 0 && Number(part.dataset.entry) !== entry);
}

function legendOf(curves) {
  const items = curves.map(({ entry }) => {
    const button = element("button", "", swatch(entry, true), page.entries[entry]);
    button.type = "button";
    button.title = `${page.entries[entry]}: show or hide`;
    button.setAttribute("aria-pressed", !hidden.has(entry));
    button.addEventListener("click", () => { hidden.delete(entry) || hidden.add(entry); draw(); $("legend").querySelector(`[data-of="${entry}"]`).focus(); });
    button.addEventListener("pointerenter", () => fade(entry));
    button.addEventListener("pointerleave", () => fade(-1));
    button.dataset.of = entry;
    return [entry, button];
  });
  $("legend").replaceChildren(...items.map(([, button]) => button));
  if (items.length < 6) return items;
  const all = element("button", "every", hidden.size ? "show all" : "hide all");
  all.type = "button";
  all.addEventListener("click", () => { hidden.size ? hidden.clear() : items.forEach(([entry]) => hidden.add(entry)); draw(); });
  $("legend").append(all);
  return items;
}

// Beside the curves' ends where there is room, below otherwise.
function legendWidth(items, total) {
  $("legend").className = "side";
  const widest = Math.max(...items.map(([, button]) => button.offsetWidth));
  if (total >= 640 && items.length <= 15 && widest <= 0.36 * total) return widest;
  $("legend").className = "";
  return 0;
}

function draw() {
  const total = $("picture").clientWidth, { log } = picked, note = measure().better === "high" ? "higher is better" : "lower is better";
  const view = { width: total, log, names: page.entries, xLabel: along, yLabel: `${withUnit(measure())} (mean; ${note})` };
  const curves = curvesOf(page, picked.group, picked.measure);
  $("plot").style.width = "";
  if (curves.length) {
    const items = legendOf(curves), side = legendWidth(items, total);
    Object.assign(view, { width: total - side, side: side > 0 });
    drawn = drawCurves($("plot"), curves.filter((c) => !hidden.has(c.entry)), view);
    if (side) nameEnds(items, drawn, view.width);
  } else {
    $("legend").replaceChildren();
    $("legend").className = "";
    const best = summariesOf(page, picked.group, picked.measure).sort((a, b) => (a.mean !== a.mean) - (b.mean !== b.mean) || direction() * (a.mean - b.mean) || 0);
    if (!best.length) { drawn = null; $("plot").replaceChildren(element("p", "hint", "No figures of this measure for these workloads.")); }
    else drawn = drawDots($("plot"), best, view);
  }
  if (drawn) bindMarks(drawn, hover, open);
  describe(curves.length > 0);
  ringOpened();
}

function describe(curves) {
  const counts = drawn ? drawn.marks.map((m) => m.count) : [], least = Math.min(...counts), most = Math.max(...counts);
  const over = least === most ? several(most, "run") : `${WHOLE.format(least)} to ${several(most, "run")}`;
  $("picture-title").textContent = measure().title + (curves ? ` along ${along}` : "") + inGroup();
  $("picture-hint").textContent = curves ? "Shaded: 95 % bootstrap interval of the mean." : "Line: 95 % bootstrap interval of the mean.";
  $("picture-foot").textContent = counts.length ? `${curves ? "A point" : "A dot"} is the mean over ${over}: click it, or press Enter on it, for the list.` : "";
}

// By default a logarithmic scale where means are far apart.
function chooseScale() {
  const curves = curvesOf(page, picked.group, picked.measure);
  const marks = curves.length ? curves.flatMap((c) => c.marks) : summariesOf(page, picked.group, picked.measure);
  const means = marks.map((m) => m.mean).filter(Number.isFinite), least = means.reduce((a, b) => Math.min(a, b), Infinity);
  const fits = means.length > 0 && least > 0;
  picked.log = fits && means.reduce((a, b) => Math.max(a, b), 0) / least > 50;
  $("log").disabled = !fits;
  $("log").checked = picked.log;
}

// ---- the runs behind a mean

function ringOpened() {
  for (const m of drawn ? drawn.marks : []) m.node.classList.toggle("on", opened !== null && m.entry === opened.entry && m.x === opened.x);
}

function open(mark, byKey) {
  opened = mark;
  ringOpened();
  $("tip").hidden = true;
  const list = mark.runs(), at = mark.x === null ? inGroup() : ` at ${along} ${plain(mark.x)}${inGroup()}`, { title } = measure();
  $("behind-title").textContent = `${several(list.length, "run")} of ${page.entries[mark.entry]}${at}`;
  $("behind-hint").textContent = `${title}: mean ${figuresOf(mark)}${failuresOf(mark)}. A linked name opens the run's own page.`;
  $("behind").hidden = false;
  const column = runs.values[picked.measure];
  const table = new Table($("behind-table"), "runs behind the mean", [valueColumn(picked.measure, measure()), RUN], 25);
  table.show(list.sort((a, b) => (column[a] !== column[a]) - (column[b] !== column[b]) || direction() * (column[b] - column[a]) || a - b));
  if (byKey) $("behind-title").focus();
}

function close() {
  const mark = drawn && drawn.marks.find((m) => m.node.classList.contains("on"));
  opened = null;
  $("behind").hidden = true;
  ringOpened();
  if (mark) mark.node.focus();
}

// ---- tables

const RUN = { title: "run", text: true, key: (k) => runs.name(k), fill: (cell, k) => fillRun(cell, page, k) };
const GROUP = { title: "workloads", text: true, key: (k) => page.groups[runs.group[k]], fill: (cell, k) => cell.append(page.groups[runs.group[k]]) };
const ENTRY = { title: "policy", text: true, key: (k) => page.entries[runs.entry[k]], fill: (cell, k) => fillEntry(cell, page, runs.entry[k]) };
const ALONG = { title: along, key: (k) => runs.x[k], fill: (cell, k) => cell.append(Number.isNaN(runs.x[k]) ? "" : plain(runs.x[k])) };
const MESSAGE = { title: "message", text: true, key: (k) => runs.failed(k), fill: (cell, k) => cell.append(element("span", "message", runs.failed(k))) };

function valueColumn(m, { better, ...rest }) {
  const column = runs.values[m], whole = column.every((v) => !Number.isFinite(v) || Number.isInteger(v));
  return { title: withUnit(rest), first: better === "high" ? -1 : 1, key: (k) => column[k], fill: (cell, k) => cell.append(figure(column[k], whole)) };
}

function makeTables() {
  const several_ = page.groups.length > 1 ? [GROUP] : [], curved = runs.x.some((x) => !Number.isNaN(x)) ? [ALONG] : [];
  const bare = { key: (row) => page.entries[row.entry], fill: (cell, row) => fillEntry(cell, page, row.entry) };
  const means = new Table($("means-table"), "means", [
    { title: "policy", text: true, ...bare },
    ...page.measures.map((m, k) => ({ title: withUnit(m), first: m.better === "high" ? -1 : 1, key: (row) => (row.of.has(k) ? row.of.get(k).mean : NaN), fill: (cell, row) => fillMean(cell, row.of.get(k)) })),
    { title: "failed", first: -1, key: (row) => row.failed, fill: (cell, row) => cell.append(row.failed ? element("em", "badge", WHOLE.format(row.failed)) : "0") },
  ]);
  const paired = new Table($("paired-table"), "paired comparisons", [
    { title: "policy", text: true, ...bare },
    { title: "baseline", text: true, key: (row) => page.entries[row.baseline], fill: (cell, row) => fillEntry(cell, page, row.baseline) },
    { title: "n", first: -1, key: (row) => row.count, fill: (cell, row) => cell.append(WHOLE.format(row.count)) },
    { title: "won, tied, lost", first: -1, key: (row) => (row.wins - row.losses) / row.count, fill: fillOutcomes },
    { title: "ratio to baseline", key: (row) => row.ratio, fill: (cell, row) => fillRatio(cell, row, row.span) },
    { title: "p", key: (row) => row.p, fill: (cell, row) => cell.append(probability(row.p)) },
  ]);
  new Table($("failures-table"), "failed runs", [RUN, MESSAGE, ...several_, ENTRY], 25).show(failed);
  const every = new Table($("all-table"), "all runs", [RUN, ...several_, ENTRY, ...curved, ...page.measures.map((m, k) => valueColumn(k, m))]);
  every.show(rowsOf(runs.count));
  return { means, paired, every };
}

function fillMeans() {
  const rows = new Map();
  for (const m of rowsOf(page.measures.length))
    for (const mark of summariesOf(page, picked.group, m)) {
      if (!rows.has(mark.entry)) rows.set(mark.entry, { entry: mark.entry, of: new Map(), failed: 0 });
      const row = rows.get(mark.entry);
      row.of.set(m, mark);
      row.failed = Math.max(row.failed, mark.failed);
    }
  $("means").hidden = !rows.size;
  $("means-title").textContent = `Means${inGroup()}`;
  tables.means.rows = [...rows.values()];
  tables.means.sort(picked.measure + 1, direction());
  tables.means.reveal(picked.measure + 1);
}

function fillPaired() {
  const all = page.comparisons, chosen = rowsOf(all.entry.length).filter((r) => all.group[r] === picked.group && all.measure[r] === picked.measure);
  const rows = chosen.map((r) => Object.fromEntries(Object.keys(all).map((name) => [name, all[name][r]])));
  const factors = rows.flatMap((row) => [row.ratio, row.low, row.high]).filter((v) => v > 0 && Number.isFinite(v)).map((v) => Math.max(v, 1 / v));
  const span = factors.reduce((a, b) => Math.max(a, b), 1.05);
  $("paired").hidden = !rows.length;
  $("paired-title").textContent = `${measure().title}, pair by pair${inGroup()}`;
  tables.paired.rows = rows.map((row) => ({ ...row, span }));
  tables.paired.sort(4, direction());
}

// A run is shown where all the words occur in what names it.
function filter() {
  const words = $("wanted").value.toLowerCase().split(/\s+/).filter(Boolean), named = [page.groups, page.entries, runs.cases];
  sought = sought || rowsOf(runs.count).map((k) =>
    [runs.name(k), named[0][runs.group[k]], named[1][runs.entry[k]], named[2][runs.case[k]], page.keyOf(k), runs.failed(k) || ""].join("\n").toLowerCase());
  tables.every.show(rowsOf(runs.count).filter((k) => words.every((word) => sought[k].includes(word))));
  say(several(tables.every.rows.length, "run"));
}

// ---- what is picked

function options(select, titles, chosen) {
  select.replaceChildren(...titles.map((title, k) => { const option = element("option", "", title); option.value = k; return option; }));
  select.value = chosen;
}

function show() {
  $("measure").value = picked.measure;
  $("group").value = picked.group;
  if (opened) close();
  chooseScale();
  draw();
  fillMeans();
  fillPaired();
}

function pick() {
  Object.assign(picked, { measure: Number($("measure").value), group: Number($("group").value) });
  history.replaceState(null, "", "#" + new URLSearchParams({ measure: measure().key, group: page.groups[picked.group] }));
  show();
}

function followHash() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const m = page.measures.findIndex(({ key }) => key === wanted.get("measure")), g = page.groups.indexOf(wanted.get("group"));
  Object.assign(picked, { measure: Math.max(m, 0), group: Math.max(g, 0) });
  show();
}

const tables = makeTables();

function begin() {
  $("name").textContent = page.name;
  $("description").textContent = page.description;
  $("tiles").replaceChildren(...page.facts.map(([label, text]) => element("div", "tile", element("span", "", label), element("b", text.length > 9 ? "long" : "", text))));
  $("notes").replaceChildren(...page.notes.map((note) => element("li", "", note)));
  $("remarks").hidden = !page.notes.length;
  $("failures").hidden = !failed.length;
  $("failures-title").textContent = `${several(failed.length, "run")} failed`;
  $("all-title").textContent = `All ${several(runs.count, "run")}`;
  $("group-choice").hidden = page.groups.length < 2;
  options($("measure"), page.measures.map(withUnit), 0);
  options($("group"), page.groups, 0);
  for (const name of ["measure", "group"]) $(name).addEventListener("change", pick);
  $("log").addEventListener("change", () => { picked.log = $("log").checked; draw(); });
  $("wanted").addEventListener("input", filter);
  for (const name of ["search", "pick"]) $(name).addEventListener("submit", (event) => event.preventDefault());
  $("close").addEventListener("click", close);
  addEventListener("keydown", (event) => { if (event.key === "Escape" && opened) close(); });
  addEventListener("hashchange", followHash);
  addEventListener("resize", draw);
  followHash();
  document.documentElement.dataset.ready = "yes";
}

begin();
