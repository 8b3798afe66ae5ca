// Asking before acting, and saying what came of it. The native dialog keeps the focus inside and closes with Escape.

import { $, h, text } from "./dom.js";

const SHOWN_MS = 8000;
const QUESTIONS = {
  cancel: (job) => ({
    title: `Cancel job ${job.id}?`, yes: "Cancel the job", no: "Keep it", danger: true,
    words: `“${job.name}” of ${job.user} is ended${job.nodes.length ? ` on ${new Set(job.nodes).size === 1 ? job.nodes[0] : `${new Set(job.nodes).size} nodes`}` : ""}. What it has not saved is lost.`,
    done: `Job ${job.id} is being cancelled.`,
  }),
  hold: (job) => ({
    title: `Hold job ${job.id}?`, yes: "Hold", no: "Leave it",
    words: `“${job.name}” of ${job.user} does not run until it is released.`, done: `Job ${job.id} is held.`,
  }),
  release: (job) => ({
    title: `Release job ${job.id}?`, yes: "Release", no: "Keep holding",
    words: `“${job.name}” of ${job.user} may run again as soon as the policy gives it a place.`, done: `Job ${job.id} is released.`,
  }),
  drain: (node) => ({
    title: `Drain ${node.name}?`, yes: "Drain", no: "Leave it",
    words: `Nothing more comes to this node. Its ${node.tasks.length === 1 ? "task goes" : `${node.tasks.length} tasks go`} on.`, done: `${node.name} is draining.`,
  }),
  undrain: (node) => ({
    title: `Undrain ${node.name}?`, yes: "Undrain", no: "Leave it", words: "This node takes jobs again.", done: `${node.name} takes jobs again.`,
  }),
};

/** Ask; true if the reader agrees. Enter agrees, Escape does not. */
function ask({ title, words, yes, no, danger }) {
  const dialog = $("confirm"), [refuse, agree] = dialog.querySelectorAll("button");
  text($("confirm-title"), title);
  text($("confirm-text"), words);
  text(agree, yes);
  text(refuse, no);
  agree.className = danger ? "danger" : "primary";
  dialog.returnValue = "no";
  dialog.showModal();
  agree.focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

/** Make the buttons and the backdrop of both dialogs work. */
export function dialogs() {
  for (const button of $("confirm").querySelectorAll("button")) button.addEventListener("click", () => $("confirm").close(button.value));
  $("help-close").addEventListener("click", () => $("help-dialog").close());
  $("help").addEventListener("click", () => $("help-dialog").showModal());
  for (const dialog of [$("confirm"), $("help-dialog")])
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close("no"));
}

/** Say what came of something, for some seconds. @param {string} words @param {boolean} [bad] */
export function toast(words, bad = false) {
  const node = h("p", { class: bad ? "toast bad" : "toast" }, words);
  $("toasts").append(node);
  setTimeout(() => node.remove(), bad ? 2 * SHOWN_MS : SHOWN_MS);
}

/**
 * Ask, do it, say what came of it.
 * @param {"cancel"|"hold"|"release"|"drain"|"undrain"} verb
 * @param {object} subject a job or a node
 * @param {(path: string) => Promise<unknown>} post
 * @returns {Promise<boolean>} whether it was done
 */
export async function confirmed(verb, subject, post) {
  const question = QUESTIONS[verb](subject);
  if (!(await ask(question))) return false;
  const path = verb.endsWith("drain") ? `/nodes/${encodeURIComponent(subject.name)}/${verb}` : `/jobs/${subject.id}/${verb}`;
  try {
    await post(path);
  } catch (error) {
    toast(`Not done: ${error.message}.`, true);
    return false;
  }
  toast(question.done);
  return true;
}
