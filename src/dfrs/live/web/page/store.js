// What the page knows, in one place. Views are told which parts changed, at most once a frame.

/**
 * @typedef {object} State
 * @property {{user: string, role: string}|null} me
 * @property {number|null} sequence of the snapshot from which cluster, nodes, jobs, queue and told are: all of them are set at once
 * @property {object|null} cluster
 * @property {object[]} nodes
 * @property {object[]} jobs one page of them
 * @property {{states: string, user: string, before: number|null, newer: (number|null)[], sort: string|null, skip: number}} asked which page; by `skip` where it is sorted
 * @property {object[]} queue
 * @property {{job: number|null, explanation: object|null, points: object[]}} told why the selected job is where it is, and how it fared
 * @property {object[]} activity the latest, in order
 * @property {object[]} points
 * @property {object[]} bars
 * @property {number} range seconds of the past that are drawn
 * @property {number|null} selected job in the drawer
 * @property {string|null} opened what the drawer shows, as in the address
 * @property {{ok: boolean, at: number|null, why: string}} link `at`: wall clock of the last data, ms
 */

/** @returns {State} */
const nothing = () => ({
  me: null, sequence: null, cluster: null, nodes: [], jobs: [], queue: [], told: { job: null, explanation: null, points: [] }, activity: [], points: [], bars: [], range: 3600, selected: null, opened: null,
  asked: { states: "placed", user: "", before: null, newer: [], sort: null, skip: 0 }, link: { ok: true, at: null, why: "" },
});

export class Store {
  /** @type {State} */
  state = nothing();
  #views = [];
  #changed = new Set();

  /** Call `update(state)` after any of `parts` changed. @param {string[]} parts @param {(state: State) => void} update */
  watch(parts, update) {
    this.#views.push({ parts, update });
  }

  /** @param {Partial<State>} patch */
  set(patch) {
    Object.assign(this.state, patch);
    if (!this.#changed.size) requestAnimationFrame(() => this.#tell());
    for (const part of Object.keys(patch)) this.#changed.add(part);
  }

  #tell() {
    const changed = this.#changed;
    this.#changed = new Set();
    for (const { parts, update } of this.#views) {
      if (!parts.some((part) => changed.has(part))) continue;
      try {
        update(this.state);
      } catch (error) {
        reportError(error); // the other views go on
      }
    }
  }
}

/** May the reader act on this job? Viewers on none, users on their own. */
export const mayAct = (me, job) => me !== null && (me.role === "admin" || (me.role === "user" && me.user === job.user));
