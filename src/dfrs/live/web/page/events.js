// What happened, the latest first, each with its why. Shares changed by one decision are one line.

import { ApiError, get } from "./api.js";
import { $, h, keyed, text } from "./dom.js";
import { clock, number, plural } from "./format.js";

const DRAWN = 60;
const TOGETHER_S = 0.05;
const NAMED = 8;
const GOOD = new Set(["start", "resume", "release", "join", "undrain", "finish", "done"]);
const BAD = new Set(["fail", "lost", "cancel", "silent", "unhealthy", "pause", "requeue", "refused"]);

const link = (job) => h("a", { href: `#job=${job}` }, `job ${job}`);
const commas = (nodes) => nodes.flatMap((node, k) => (k ? [", ", node] : [node]));

/** Neighbours that are shares of the same decision make one group. */
function groups(activity) {
  const found = [];
  for (const one of activity) {
    const last = found.at(-1)?.at(-1);
    if (last && one.action === "share" && last.action === "share" && one.time - last.time < TOGETHER_S) found.at(-1).push(one);
    else found.push([one]);
  }
  return found;
}

function whatOf(group) {
  const [one] = group;
  if (group.length > 1) {
    const jobs = [...new Set(group.map(({ job }) => job))], yields = group.map(({ yield_ }) => yield_).filter((value) => value !== null);
    const rest = jobs.length > NAMED ? ` and ${jobs.length - NAMED} more` : "";
    const [least, most] = [number(Math.min(...yields)), number(Math.max(...yields))];
    const range = !yields.length ? "" : least === most ? `: yield ${least}` : `: yields ${least} to ${most}`;
    return [...commas(jobs.slice(0, NAMED).map(link)), rest + range];
  }
  const parts = one.job !== null ? [link(one.job)] : one.node ? [one.node] : ["cluster"];
  const nodes = [...new Set(one.nodes)], where = nodes.length ? ` on ${nodes.length > 4 ? plural(nodes.length, "node") : nodes.join(", ")}` : "";
  const share = one.yield_ === null ? "" : `, yield ${number(one.yield_)}`;
  return [...parts, where || (one.job !== null && one.node ? ` on ${one.node}` : ""), share, one.by ? `, asked by ${one.by}` : ""];
}

/** One line of the list. @param {object[]} group @param {boolean} [named] with the job's number */
export function item(group, named = true) {
  const [one] = group, kind = GOOD.has(one.action) ? "good" : BAD.has(one.action) ? "bad" : one.action === "share" ? "share" : "";
  const what = named || one.job === null ? whatOf(group) : whatOf(group).slice(1);
  return h("li", { class: kind }, h("time", {}, clock(one.time)),
    h("div", {}, h("b", {}, one.action), " ", ...what, one.why ? h("p", { class: "quiet" }, one.why) : null));
}

async function shadow(details) {
  try {
    const choices = await get("/shadow", { limit: 30 });
    $("shadow-list").replaceChildren(...choices.map((one) => h("li", {}, h("time", {}, clock(one.time)),
      h("div", {}, link(one.job), h("p", { class: "quiet" }, `did: ${one.did}`), h("p", { class: "quiet" }, `would: ${one.would}`)))));
    if (!choices.length) $("shadow-list").replaceChildren(h("li", {}, "No difference so far."));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    details.open = false;
  }
}

/** @param {import("./store.js").Store} store */
export function eventsView(store) {
  const list = $("event-list"), details = $("shadow");
  store.watch(["activity", "cluster"], ({ activity, cluster }) => {
    const latest = groups(activity).reverse().slice(0, DRAWN);
    if (latest.length) list.querySelector(".empty")?.remove();
    if (latest.length) keyed(list, latest, (group) => `${group[0].sequence}+${group.length}`, (group) => item(group), () => {});
    else if (cluster && !list.childElementCount) list.replaceChildren(h("li", { class: "empty" }, "Nothing yet."));
    details.hidden = !cluster?.shadow;
    if (cluster?.shadow) text(details.firstElementChild, `What ${cluster.shadow} would have done otherwise: ${cluster.shadow_differs} of ${plural(cluster.decisions, "decision")}`);
  });
  details.addEventListener("toggle", () => details.open && shadow(details));
}
