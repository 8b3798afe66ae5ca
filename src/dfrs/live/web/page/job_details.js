// Everything about one job: what may be done with it, why it is where it is, how it fared and came there, what it wrote.

import { h, text, vars } from "./dom.js";
import { item } from "./events.js";
import { bytes, count, date, duration, names, need, number } from "./format.js";
import { jobChart } from "./job_chart.js";
import { stateOf } from "./jobs.js";
import { outputView } from "./output.js";
import { colourOf } from "./palette.js";
import { mayAct } from "./store.js";

const VERBS = {
  waiting: ["hold", "cancel"], pending: ["hold", "cancel"], held: ["release", "cancel"], starting: ["cancel"],
  running: ["hold", "cancel"], paused: ["hold", "cancel"], ending: [], done: [], failed: [], cancelled: [],
};
const NAMES = { hold: "Hold", release: "Release", cancel: "Cancel the job" };

function facts(job, bound, now) {
  const times = [["Submitted", date(job.submitted_at)], ["Started", job.started_at && date(job.started_at)], ["Ended", job.ended_at && date(job.ended_at)],
    ["Starts at", job.start_at && date(job.start_at)]].filter(([, value]) => value);
  const all = [
    ["Yield received", job.yield_granted === null ? null : job.yield_received === null ? "not measured yet" : `${number(job.yield_received)} ± ${number(job.yield_received_error)}`],
    ["Yield granted", job.yield_granted === null ? null : number(job.yield_granted)],
    ["Not as granted", job.apart || null],
    ["Best possible", job.yield_granted === null || bound === null ? null : `a minimum yield of ${number(bound)}`],
    ["Least yield asked", job.minimum_yield > 0 ? number(job.minimum_yield) : null],
    ["Weight", job.fair_share === null ? (job.weight === 1 ? null : number(job.weight)) : `${number(job.weight)}, times ${number(job.fair_share)} by what was used lately`],
    ["Need of a task", `${need(job)} cores, ${job.cpu_cores === null ? "found by watching it" : "as declared"}`],
    ["CPU used now", job.used_cores === null ? null : `${number(job.used_cores)} cores`],
    ["CPU time", duration(job.cpu_s)],
    ["Memory of a task", `${bytes(job.memory_bytes)}${job.used_bytes === null ? "" : `; all tasks use ${bytes(job.used_bytes)}`}`],
    ["Most memory of a task", job.peak_bytes === null ? null : bytes(job.peak_bytes)],
    ["Tasks", count(job.tasks)], ["Nodes", names(job.nodes, 12) || null],
    ["Stretch", job.stretch === null ? null : `${number(job.stretch)}${job.virtual_measured ? "" : ", as granted, not measured"}`],
    ["Flow time", duration((job.ended_at ?? now) - job.submitted_at)],
    ["Pauses, moves", `${job.pauses}, ${job.migrations}`],
    ["Queued again", job.attempt > 0 ? `${job.attempt} ×` : null],
    ["After jobs", [["", job.after], [":failed", job.after_failed], [":any", job.after_any], [":start", job.after_start]]
      .flatMap(([kind, jobs]) => jobs.map((name) => `${name}${kind}`)).join(", ") || null],
    ["Array index", job.array_index === null ? null : String(job.array_index)],
    ["Exit", job.exit ? `${job.exit}${job.exit_code === null ? "" : ` (${job.exit_code})`}` : null], ...times,
  ];
  return all.filter(([, value]) => value !== null && value !== undefined).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
}

function quoted(part) {
  return /^[\w@%+=:,./-]+$/.test(part) ? part : `'${part.replaceAll("'", "'\\''")}'`;
}

/**
 * What the drawer shows of a job.
 * @param {number} id
 * @param {import("./store.js").Store} store
 * @param {(verb: string, job: object) => Promise<boolean>} act
 * @returns {import("./drawer.js").Details}
 */
export function jobDetails(id, store, act) {
  const node = h("div", { class: "details" });
  let output = null, frame = null, attempt = null;

  const build = (job) => {
    const state = stateOf(), title = h("h2", { id: "drawer-title", tabindex: -1 }), why = h("p", { class: "why" }), buttons = h("div", { class: "answers" });
    const list = h("dl"), steps = h("ol", { class: "steps" }), command = h("pre", { class: "command", tabindex: 0, role: "region", "aria-label": "Command" }), chart = jobChart();
    output = mayAct(store.state.me, job) ? outputView(job) : null;
    node.replaceChildren(h("div", { class: "head" }, h("i", { "aria-hidden": "true" }), title), h("p", { class: "quiet" }, state, ` · of ${job.user}${job.account ? `, charged to ${job.account}` : ""}`), why, buttons,
      command, list, chart.node, output?.node ?? h("p", { class: "quiet" }, "Its command and its output are for its owner and for administrators."), h("section", {}, h("h3", {}, "How it came there"), steps));
    vars(node, { "--c": colourOf(job.id) });
    return { state, title, why, buttons, list, chart, steps, command };
  };

  const show = ({ job, now, history, bound }, points) => {
    if (frame === null) frame = build(job);
    else if (attempt !== job.attempt) output?.read(); // what it writes now begins anew
    ({ attempt } = job);
    text(frame.title, `Job ${job.id} · ${job.name}`);
    frame.state.update(job.state);
    text(frame.why, now || job.why);
    text(frame.command, job.command.map(quoted).join(" "));
    frame.list.replaceChildren(...facts(job, bound, store.state.cluster.now));
    frame.chart.update(points, job, store.state.cluster.now);
    const verbs = mayAct(store.state.me, job) ? VERBS[job.state] : [];
    if (frame.buttons.dataset.verbs !== verbs.join()) {
      frame.buttons.dataset.verbs = verbs.join();
      frame.buttons.replaceChildren(...verbs.map((verb) => h("button", { type: "button", class: verb === "cancel" ? "danger" : null,
        on: { click: () => act(verb, job) } }, NAMES[verb])));
    }
    frame.steps.replaceChildren(...history.toReversed().map((one) => item([one], false)));
    return true;
  };

  const update = ({ told: { job, explanation, points } }) => {
    if (job !== id) return false;
    if (explanation) return show(explanation, points);
    if (frame === null) node.replaceChildren(h("div", { class: "head" }, h("h2", { id: "drawer-title", tabindex: -1 }, `There is no job ${id}.`)));
    return true;
  };
  return { node, update, stop: () => output?.stop() };
}
