// Everything about one job: what may be done with it, why it is where it is, how it came there, what it wrote.

import { $, h, text, vars } from "./dom.js";
import { item } from "./events.js";
import { bytes, count, date, duration, names, need, number } from "./format.js";
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
    ["Need of a task", `${need(job)} cores, ${job.cpu_cores === null ? "found by watching it" : "as declared"}`],
    ["CPU used now", job.used_cores === null ? null : `${number(job.used_cores)} cores`],
    ["CPU time", duration(job.cpu_s)],
    ["Memory of a task", `${bytes(job.memory_bytes)}${job.used_bytes === null ? "" : `; all tasks use ${bytes(job.used_bytes)}`}`],
    ["Most memory of a task", job.peak_bytes === null ? null : bytes(job.peak_bytes)],
    ["Tasks", count(job.tasks)], ["Nodes", names(job.nodes, 12) || null],
    ["Stretch", job.stretch === null ? null : number(job.stretch)],
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
 * @param {import("./store.js").Store} store
 * @param {(verb: string, job: object) => Promise<boolean>} act
 * @param {() => void} ask for what the page shows, with the selected job
 * @returns {{open: (job: number) => void, close: () => void}}
 */
export function drawer(store, act, ask) {
  const root = $("drawer");
  let output = null, from = null, wanted = null, frame = null;

  const build = (job) => {
    const state = stateOf(), title = h("h2", { id: "drawer-title", tabindex: -1 }), why = h("p", { class: "why" }), buttons = h("div", { class: "answers" });
    const list = h("dl"), steps = h("ol", { class: "steps" }), command = h("pre", { class: "command", tabindex: 0, role: "region", "aria-label": "Command" });
    const shut = h("button", { type: "button", class: "shut", "aria-label": "Close", on: { click: close } }, "×");
    const mine = mayAct(store.state.me, job);
    output = mine ? outputView(job) : null;
    root.replaceChildren(shut, h("header", {}, h("i", { "aria-hidden": "true" }), title), h("p", { class: "quiet" }, state, ` · of ${job.user}`), why, buttons,
      command, list, output?.node ?? h("p", { class: "quiet" }, "Its command and its output are for its owner and for administrators."), h("section", {}, h("h3", {}, "How it came there"), steps));
    vars(root, { "--c": colourOf(job.id) });
    return { state, title, why, buttons, list, steps, command };
  };

  const show = ({ job, now, history, bound }) => {
    const fresh = frame === null;
    frame ??= build(job);
    text(frame.title, `Job ${job.id} · ${job.name}`);
    frame.state.update(job.state);
    text(frame.why, now || job.why);
    text(frame.command, job.command.map(quoted).join(" "));
    frame.list.replaceChildren(...facts(job, bound, store.state.cluster.now));
    const verbs = mayAct(store.state.me, job) ? VERBS[job.state] : [];
    if (frame.buttons.dataset.verbs !== verbs.join()) {
      frame.buttons.dataset.verbs = verbs.join();
      frame.buttons.replaceChildren(...verbs.map((verb) => h("button", { type: "button", class: verb === "cancel" ? "danger" : null,
        on: { click: () => act(verb, job) } }, NAMES[verb])));
    }
    frame.steps.replaceChildren(...history.toReversed().map((one) => item([one], false)));
    root.hidden = false;
    document.body.classList.add("told");
    if (fresh) frame.title.focus();
  };

  const missing = (words) => {
    root.replaceChildren(h("button", { type: "button", class: "shut", "aria-label": "Close", on: { click: close } }, "×"),
      h("header", {}, h("h2", { id: "drawer-title", tabindex: -1 }, words)));
    root.hidden = false;
    root.querySelector("h2").focus();
  };

  const open = (id) => {
    if (wanted === id && !root.hidden) return;
    if (root.hidden) from = document.activeElement;
    output?.stop();
    [output, frame, wanted] = [null, null, id];
    history.replaceState(null, "", `#job=${id}`);
    store.set({ selected: id });
    ask();
  };

  function close() {
    if (wanted === null) return;
    output?.stop();
    [output, frame, wanted] = [null, null, null];
    root.hidden = true;
    root.replaceChildren();
    document.body.classList.remove("told");
    history.replaceState(null, "", location.pathname);
    store.set({ selected: null });
    if (from?.isConnected) from.focus();
  }

  store.watch(["told", "me"], ({ told: { job, explanation } }) => {
    if (wanted === null || job !== wanted) return;
    if (explanation) show(explanation);
    else if (frame === null) missing(`There is no job ${wanted}.`);
  });
  return { open, close };
}
