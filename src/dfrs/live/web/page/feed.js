// Keeps the store up to date: a change makes the page ask again, at most twice a second and never faster than the
// controller answers; without changes it asks every few seconds, as measured use changes silently.

import { ApiError, follow, get } from "./api.js";

const PAGE = 25;
const QUEUE = 200;
const EVENTS = 200;
const LEAST_MS = 500;
const IDLE_MS = 5000;
const AGAIN_MS = 2000; // after a failure
const HISTORY_MS = 4000;
const LIVE = ["pending", "held", "waiting", "starting", "running", "paused", "ending"];
const ENDED = ["done", "failed", "cancelled"];
const PLACED = ["starting", "running", "paused", "ending"];
const STATES = { placed: PLACED, live: null, ended: ENDED, all: [...LIVE, ...ENDED] };

export class Feed {
  #busy = false;
  #again = false;
  #changed = false; // while it asked: what it was told may be older
  #wanted = false;
  #timer = 0;
  #last = 0;
  #cost = 0;
  #history = 0;
  #generation = 0;

  /**
   * @param {import("./store.js").Store} store
   * @param {(why: string) => void} onSignedOut
   */
  constructor(store, onSignedOut) {
    this.store = store;
    this.onSignedOut = onSignedOut;
    document.addEventListener("visibilitychange", () => this.soon());
  }

  /** Begin, or begin again with another token. */
  start() {
    const generation = ++this.#generation;
    this.#wanted = true;
    const mine = () => this.#wanted && generation === this.#generation;
    follow(() => mine() && this.soon(), (up, error) => {
      if (!mine()) return;
      if (error?.status === 401) this.#signedOut(error);
      else this.soon();
    });
    this.now();
  }

  /** Ask again when it is time. */
  soon() {
    if (!this.#wanted || document.hidden) return;
    if (this.#busy) {
      this.#changed = true;
      return;
    }
    const due = this.#last + Math.max(LEAST_MS, 3 * this.#cost) - performance.now();
    this.#plan(Math.max(0, due));
  }

  /** Ask at once: the reader did something. @param {boolean} [history] points and bars too */
  now(history = true) {
    if (history) this.#history = 0;
    if (this.#busy) this.#again = true;
    else this.#plan(0);
  }

  #plan(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#refresh(), ms);
  }

  #signedOut(error) {
    if (!this.#wanted) return;
    this.#wanted = false;
    clearTimeout(this.#timer);
    this.onSignedOut(error.message);
  }

  async #refresh() {
    if (this.#busy || !this.#wanted) return;
    this.#busy = true;
    const began = performance.now();
    try {
      this.store.set({ ...(await this.#ask(began)), link: { ok: true, at: Date.now(), why: "" } });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const { me, link } = this.store.state;
      if (error.status === 401 || (error.status === 403 && me === null)) this.#signedOut(error);
      else this.store.set({ link: { ...link, ok: false, why: error.message } });
    } finally {
      this.#busy = false;
      this.#last = performance.now();
      this.#cost = this.#last - began;
      const idle = this.store.state.link.ok ? IDLE_MS : AGAIN_MS;
      if (this.#wanted) this.#plan(this.#again ? 0 : Math.max(idle, 3 * this.#cost));
      if (this.#changed && !this.#again && this.store.state.link.ok) this.soon();
      this.#again = this.#changed = false;
    }
  }

  async #ask(began) {
    const { asked, activity, range, me, selected, cluster: before } = this.store.state, states = STATES[asked.states] ?? [asked.states];
    const chosen = { state: asked.states === "live" ? null : states, user: asked.user || null, before: asked.before, limit: PAGE, sort: asked.sort, skip: asked.skip || null };
    const [who, snapshot] = await Promise.all([me ?? get("/me"), get("/snapshot", { ...chosen, queue: QUEUE, job: selected })]);
    const { sequence, cluster, nodes, jobs, queue, explanation } = snapshot;
    const after = before === null || before.started_at === cluster.started_at ? activity.at(-1)?.sequence ?? 0 : 0;
    const [news, points] = await Promise.all([get("/activity", { after, limit: EVENTS }), explanation === null ? [] : get(`/jobs/${selected}/points`)]);
    const found = { ...(me === null && { me: who }), sequence, cluster, nodes, jobs, queue, told: { job: selected, explanation, points } };
    const restarted = before !== null && before.started_at !== cluster.started_at; // perhaps with another history
    if (restarted) found.activity = [];
    else if (news.length) found.activity = [...activity, ...news].slice(-EVENTS);
    if (began - this.#history < HISTORY_MS && this.#history) return found;
    const since = cluster.now - range;
    [found.points, found.bars] = await Promise.all([get("/timeseries", { since }), get("/gantt", { since })]);
    if (range === this.store.state.range) this.#history = began;
    return found;
  }
}

export { PAGE };
