// The end of what a task has written, with a choice of task and stream; it follows while the job runs.

import { ApiError, get } from "./api.js";
import { h, text } from "./dom.js";

const PART = 262_144;
const MOST_PARTS = 16;
const KEPT = 65_536;
const FOLLOW_MS = 2000;
const PASSING = new Set([0, 429, 503]); // no answer, too many questions, not now: it may go well the next time

/** @param {object} job @returns {{node: Element, read: () => void, stop: () => void}} `read` begins anew */
export function outputView(job) {
  const rank = h("select", { "aria-label": "Task" }, ...Array.from({ length: Math.min(job.tasks, 1000) }, (_, k) => h("option", { value: k }, `task ${k}`)));
  const stream = h("select", { "aria-label": "Stream" }, h("option", { value: "out" }, "output"), h("option", { value: "err" }, "errors"));
  const shown = h("pre", { tabindex: 0, role: "region", "aria-label": "Output" }), note = h("p", { class: "quiet" });
  let timer = 0, round = 0;

  async function read() {
    const mine = ++round;
    let offset = 0, kept = "";
    clearTimeout(timer);
    text(shown, "");
    text(note, "Reading …");
    const more = async () => {
      let caughtUp = false;
      for (let k = 0; k < MOST_PARTS; k++) {
        const part = await get(`/jobs/${job.id}/output`, { rank: rank.value, stream: stream.value, offset, limit: PART });
        if (mine !== round) return;
        kept = (kept + part.text).slice(-KEPT);
        const stuck = part.next_offset === offset;
        offset = part.next_offset;
        if (part.ended) { show("Complete."); return; }
        caughtUp = stuck || part.text === "";
        if (caughtUp) break;
      }
      show(caughtUp ? "Follows as more is written." : "Reading …");
      again(caughtUp ? FOLLOW_MS : 0);
    };
    const show = (words) => {
      const atEnd = shown.scrollHeight - shown.scrollTop - shown.clientHeight < 30;
      text(shown, kept);
      text(note, kept ? words : `Nothing written${words === "Complete." ? "." : " yet."}`);
      if (atEnd) shown.scrollTop = shown.scrollHeight;
    };
    const fail = (error) => {
      if (mine !== round) return;
      if (!(error instanceof ApiError)) throw error;
      const passing = PASSING.has(error.status);
      text(note, `${kept ? "No more output" : "No output"}: ${error.message}.${passing ? " Trying again." : ""}`);
      if (passing) again(FOLLOW_MS);
    };
    const again = (ms) => { timer = setTimeout(() => more().catch(fail), ms); };
    await more().catch(fail);
  }

  rank.addEventListener("change", read);
  stream.addEventListener("change", read);
  read();
  const choice = h("div", { class: "bar" }, h("h3", {}, "Output"), h("div", { class: "choice" }, job.tasks > 1 ? rank : null, stream));
  return { node: h("section", {}, choice, shown, note), read, stop: () => { round++; clearTimeout(timer); } };
}
