// The panel beside the page: everything about one job or one node, as the address says.

import { $, h } from "./dom.js";
import { jobDetails } from "./job_details.js";
import { nodeDetails } from "./node_details.js";

/**
 * @typedef {object} Details
 * @property {Element} node
 * @property {(state: import("./store.js").State) => boolean} update whether there is something to see now
 * @property {() => void} stop
 */

/**
 * @param {import("./store.js").Store} store
 * @param {(verb: string, subject: object) => Promise<boolean>} act
 * @param {() => void} ask for what the page shows, with the selected job
 * @returns {{open: (job: number) => void, openNode: (name: string) => void, close: () => void}}
 */
export function drawer(store, act, ask) {
  const root = $("drawer"), shut = h("button", { type: "button", class: "shut", "aria-label": "Close", on: { click: close } }, "×");
  let details = null, wanted = null, from = null;

  const begin = (address, selected, made) => {
    if (wanted === address) return;
    if (root.hidden) from = document.activeElement;
    details?.stop();
    [details, wanted] = [made(), address];
    history.replaceState(null, "", `#${address}`);
    store.set({ selected, opened: address });
    ask();
  };
  const open = (job) => begin(`job=${job}`, job, () => jobDetails(job, store, act));
  const openNode = (name) => begin(`node=${encodeURIComponent(name)}`, null, () => nodeDetails(name, store, act));

  function close() {
    if (wanted === null) return;
    details.stop();
    [details, wanted] = [null, null];
    root.hidden = true;
    root.replaceChildren();
    document.body.classList.remove("told");
    history.replaceState(null, "", location.pathname);
    store.set({ selected: null, opened: null });
    if (from?.isConnected) from.focus();
  }

  store.watch(["told", "me", "nodes", "bars", "opened"], (state) => {
    if (details === null || !state.cluster || !details.update(state) || details.node.isConnected) return;
    root.replaceChildren(shut, details.node);
    root.hidden = false;
    document.body.classList.add("told");
    root.querySelector("h2").focus();
  });
  return { open, openNode, close };
}
