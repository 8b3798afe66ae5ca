// The run as arrays, and what follows from its log: spans of time in which a job kept nodes and yield.

function readRun() {
  const run = JSON.parse($("data").textContent);
  const kinds = {
    jobs: { tasks: "i4", submit: "f8", need: "f4", memory: "f4", run: "f8", start: "f8", finish: "f8", stretch: "f8",
      pauses: "i4", migrations: "i4", colour: "u1" },
    events: { time: "f8", job: "i4", action: "u1", yield: "f4", why: "u2", penalty: "f4", list: "u4", first: "u4", nodes: "u4" },
  };
  for (const [part, columns] of Object.entries(kinds))
    for (const [name, kind] of Object.entries(columns)) run[part][name] = unpack(run[part][name], kind);
  for (const part of Object.values(run.timeline))
    for (const name of Object.keys(part)) part[name] = unpack(part[name], name === "time" ? "f8" : "f4");
  run.cpu = unpack(run.cpu, "f4");
  run.nodes = run.cpu.length;
  run.count = run.jobs.id.length;
  run.indexOf = new Map(run.jobs.id.map((id, index) => [id, index]));
  return run;
}

// Spans, ordered by their beginning: job, begin, end, yield, ready (no progress before), row (names the nodes).
// States of each job: [begin, end, yield or a word].
function replay(run) {
  const { events: log, jobs } = run;
  const act = Object.fromEntries(run.actions.map((name, k) => [name, k]));
  const spans = [], here = new Array(run.count).fill(null), lives = Array.from({ length: run.count }, () => []);
  const mode = new Array(run.count).fill("waiting"), since = Array.from(jobs.submit);
  const end = (j, time) => {
    if (time > since[j]) {
      const at = here[j];
      if (at) spans.push({ job: j, begin: since[j], end: time, yield: at.yield, ready: at.ready, row: at.row });
      lives[j].push([since[j], time, at ? at.yield : mode[j], at ? at.ready : 0]);
    }
    since[j] = time;
  };
  const down = new Map(), outages = [];
  for (let r = 0; r < log.time.length; r++) {
    const j = log.job[r], a = log.action[r], time = log.time[r];
    if (j < 0) {
      for (let k = log.first[log.list[r]]; k < log.first[log.list[r] + 1]; k++) {
        const node = log.nodes[k];
        if (a === act.down && !down.has(node)) down.set(node, time);
        if (a === act.up && down.has(node)) { outages.push([node, down.get(node), time]); down.delete(node); }
      }
      continue;
    }
    end(j, time);
    if (a === act.share) { if (here[j]) here[j].yield = log.yield[r]; }
    else if (a === act.pause) { here[j] = null; mode[j] = "paused"; }
    else if (a === act.lost) { here[j] = null; mode[j] = "waiting"; }
    else if (a === act.finish) { here[j] = null; since[j] = Infinity; }
    else here[j] = { yield: log.yield[r], ready: a === act.resize ? here[j].ready : time + log.penalty[r], row: r };
  }
  for (let j = 0; j < run.count; j++) end(j, Math.max(run.end, since[j]));
  for (const [node, time] of down) outages.push([node, time, run.end]);
  spans.sort((a, b) => a.begin - b.begin);
  return { spans, lives, outages };
}

// For each node, the spans with tasks on it, by beginning, and how many tasks.
function byNode(run, spans) {
  const log = run.events;
  const nodes = Array.from({ length: run.nodes }, () => ({ span: [], tasks: [] }));
  spans.forEach((span, s) => {
    const list = log.list[span.row];
    for (let k = log.first[list]; k < log.first[list + 1]; k++) {
      const node = nodes[log.nodes[k]];
      if (node.span[node.span.length - 1] === s) node.tasks[node.tasks.length - 1]++;
      else { node.span.push(s); node.tasks.push(1); }
    }
  });
  return nodes;
}

function clock(seconds) {
  const whole = Math.round(Math.abs(seconds)), two = (n) => String(n).padStart(2, "0");
  const text = `${Math.floor(whole / 86400)}+${two(Math.floor(whole / 3600) % 24)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return seconds < 0 && whole ? "-" + text : text;
}

function shortClock(seconds, step) {
  const days = Math.floor(seconds / 86400), text = clock(seconds).split("+")[1];
  if (step % 86400 === 0) return `${days} d`;
  return (days > 0 ? days + "+" : "") + (step % 60 ? text : text.slice(0, 5));
}

// What a row names, as the log writes it: ranges of nodes with equally many tasks.
function nodeText(run, row) {
  const log = run.events, list = log.list[row], tasks = new Map();
  for (let k = log.first[list]; k < log.first[list + 1]; k++) tasks.set(log.nodes[k], (tasks.get(log.nodes[k]) || 0) + 1);
  const sorted = [...tasks].sort((a, b) => a[0] - b[0]), parts = [];
  for (let k = 0, begin = 0; k < sorted.length; k++) {
    const next = sorted[k + 1];
    if (next && next[0] === sorted[k][0] + 1 && next[1] === sorted[k][1]) continue;
    const range = begin === k ? `${sorted[k][0]}` : `${sorted[begin][0]}-${sorted[k][0]}`;
    parts.push(range + (sorted[k][1] > 1 ? `*${sorted[k][1]}` : ""));
    begin = k + 1;
  }
  return parts.join(" ");
}
