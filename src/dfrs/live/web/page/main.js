// Puts the page together: who is signed in, what is shown, what is lost.

import { forgetToken, hasToken, post, setToken, takeToken } from "./api.js";
import { chartView } from "./chart.js";
import { confirmed, dialogs } from "./dialog.js";
import { $, text } from "./dom.js";
import { drawer } from "./drawer.js";
import { eventsView } from "./events.js";
import { Feed } from "./feed.js";
import { clock, duration } from "./format.js";
import { ganttView } from "./gantt.js";
import { headline } from "./headline.js";
import { jobsView, queueView } from "./jobs.js";
import { nodesView } from "./nodes.js";
import { keys, ranges, theme } from "./settings.js";
import { Store } from "./store.js";
import { tips } from "./tip.js";

takeToken();
const store = new Store();
const feed = new Feed(store, signIn);
const act = async (verb, subject) => {
  const done = await confirmed(verb, subject, post);
  if (done) feed.now(false);
  return done;
};
const { open, openNode, close } = drawer(store, act, () => feed.now(false));

headline(store);
nodesView(store, { open, act });
chartView(store);
jobsView(store, open, () => feed.now(false));
queueView(store, open);
ganttView(store, open);
eventsView(store);
dialogs();
tips($("nodes"));
keys({ theme: theme(store), range: ranges(store, () => feed.now()), close });

/** Ask for a token. @param {string} why what the controller said of the last one */
function signIn(why) {
  close();
  store.set({ me: null, link: { ...store.state.link, ok: true } }); // it does answer
  text($("sign-in-why"), hasToken() ? `That token does not work: ${why}.` : "This cluster asks who you are.");
  forgetToken();
  [$("main").hidden, $("sign-in").hidden, $("sign-out").hidden] = [true, false, true];
  text($("connection"), "");
  $("token").focus();
}

$("sign-in-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken($("token").value.trim());
  $("token").value = "";
  feed.start();
});
$("sign-out").addEventListener("click", () => {
  forgetToken();
  location.replace(location.pathname);
});

store.watch(["sequence"], ({ sequence }) => { $("main").dataset.snapshot = sequence; }); // after all views of it
store.watch(["me"], ({ me }) => {
  if (!me) return;
  [$("main").hidden, $("sign-in").hidden, $("sign-out").hidden] = [false, true, !hasToken()];
  text($("user"), ` ${me.user}`);
  $("sign-out").title = `You are ${me.user} with the role ${me.role}`;
  fromAddress();
});

/** The job or node that the address names: links to them are ordinary links. */
function fromAddress() {
  const address = new URLSearchParams(location.hash.slice(1)), job = address.get("job"), node = address.get("node");
  if (job !== null && /^[1-9]\d{0,14}$/.test(job)) open(Number(job));
  else if (node) openNode(node);
}
addEventListener("hashchange", () => {
  takeToken();
  fromAddress();
});

function connection({ link, me }) {
  document.body.classList.toggle("stale", !link.ok);
  $("banner").hidden = link.ok;
  if (!link.ok) {
    const data = link.at === null ? "There are no data yet." : `The figures are of ${clock(link.at / 1000)}.`;
    text($("banner"), `No connection: ${link.why}. ${data} Trying again.`);
  }
  text($("connection"), link.at === null || !me ? "" : link.ok ? `live · ${clock(link.at / 1000)}` : `${duration((Date.now() - link.at) / 1000)} old`);
  $("connection").classList.toggle("live", link.ok && link.at !== null);
}
store.watch(["link", "me"], connection);
setInterval(() => store.state.link.ok || connection(store.state), 1000);

feed.start();
