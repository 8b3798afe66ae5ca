// The campaign as arrays. Its texts are numbers of words, put together when they are asked for.

const COLUMNS = {
  runs: { key: "u1", group: "u2", entry: "u2", case: "u4", x: "f8" },
  curves: { group: "u2", entry: "u2", measure: "u2", first: "u4", x: "f8", mean: "f8", low: "f8", high: "f8", list: "u4" },
  lists: { first: "u4", run: "u4" },
  summaries: { group: "u2", entry: "u2", measure: "u2", mean: "f8", low: "f8", high: "f8", count: "u4", failed: "u4" },
  comparisons: { group: "u2", entry: "u2", baseline: "u2", measure: "u2", count: "u4", wins: "u4", ties: "u4", losses: "u4",
    ratio: "f8", low: "f8", high: "f8", p: "f8" },
};

function readCampaign() {
  const page = JSON.parse($("data").textContent), runs = page.runs;
  for (const [part, columns] of Object.entries(COLUMNS))
    for (const [name, kind] of Object.entries(columns)) page[part][name] = unpack(page[part][name], kind);
  runs.values = runs.values.map((column) => unpack(column, "f4"));
  runs.count = runs.entry.length;
  const key = (k) => Array.from(runs.key.subarray(8 * k, 8 * k + 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
  for (const name of ["name", "failed", "link", "command"]) runs[name] = textsOf(runs[name], key);
  page.keyOf = key;
  return page;
}

// The k-th text, null where there is none. Word 0 is the run's own key.
function textsOf({ words, number, length }, key) {
  const numbers = unpack(...number), lengths = unpack(...length), starts = new Uint32Array(lengths.length + 1);
  lengths.forEach((count, k) => { starts[k + 1] = starts[k] + count; });
  return (k) => {
    if (starts[k] === starts[k + 1]) return null;
    let text = "";
    for (let i = starts[k]; i < starts[k + 1]; i++) text += numbers[i] ? words[numbers[i]] : key(k);
    return text;
  };
}

const rowsOf = (count) => Array.from({ length: count }, (_, k) => k);

// A mark is a mean that the picture shows: of a curve's point, or of a summary.
function curvesOf(page, group, measure) {
  const { curves, lists } = page, found = [];
  for (const c of rowsOf(curves.entry.length)) {
    if (curves.group[c] !== group || curves.measure[c] !== measure) continue;
    const marks = [];
    for (let k = curves.first[c]; k < curves.first[c + 1]; k++) {
      const list = curves.list[k], runs = lists.run.subarray(lists.first[list], lists.first[list + 1]);
      marks.push({ entry: curves.entry[c], x: curves.x[k], mean: curves.mean[k], low: curves.low[k], high: curves.high[k],
        count: runs.length, failed: 0, runs: () => Array.from(runs) });
    }
    if (marks.length) found.push({ entry: curves.entry[c], marks: marks.sort((a, b) => a.x - b.x) });
  }
  return found;
}

function summariesOf(page, group, measure) {
  const { summaries: rows, runs } = page, own = runs.group.includes(group);
  return rowsOf(rows.entry.length).filter((r) => rows.group[r] === group && rows.measure[r] === measure).map((r) => ({
    entry: rows.entry[r], x: null, mean: rows.mean[r], low: rows.low[r], high: rows.high[r], count: rows.count[r], failed: rows.failed[r],
    runs: () => rowsOf(runs.count).filter((k) => runs.entry[k] === rows.entry[r] && (!own || runs.group[k] === group)),
  }));
}

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const PLAIN = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
const isExtreme = (value) => Math.abs(value) >= 1e7 || (value !== 0 && Math.abs(value) < 1e-3);
const scientific = (value) => value.toExponential(2).replace("e+", "e");

// As exact as is of use; figures of one column are alike.
function figure(value, whole = false) {
  const size = Math.abs(value);
  if (Number.isNaN(value)) return "–";
  if (size === Infinity) return value > 0 ? "∞" : "−∞";
  if (isExtreme(value)) return scientific(value);
  if (size >= 1000 || whole || value === 0) return WHOLE.format(value || 0);
  return size >= 1 ? value.toFixed(size >= 100 ? 1 : 2) : value.toPrecision(3);
}

// A figure of a scale, as short as it can be.
const plain = (value) => (isExtreme(value) ? scientific(value).replace(/\.?0+e/, "e") : PLAIN.format(value));
const interval = (low, high) => (Number.isNaN(low) || Number.isNaN(high) ? "" : `[${figure(low)}, ${figure(high)}]`);
const several = (count, what) => `${WHOLE.format(count)} ${what}${count === 1 ? "" : "s"}`;
const withUnit = (measure) => measure.title + (measure.unit ? `, ${measure.unit}` : "");
