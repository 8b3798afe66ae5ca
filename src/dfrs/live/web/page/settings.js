// The reader's settings, kept in the browser: theme, range of time, single-key shortcuts.

import { $, attribute, h, text } from "./dom.js";

const THEMES = ["auto", "light", "dark"];
const RANGES = [[900, "15 min"], [3600, "1 h"], [21_600, "6 h"], [86_400, "24 h"]];
const SECTIONS = ["nodes", "history", "jobs", "queue", "gantt", "events"];

const kept = (name, otherwise) => localStorage.getItem(`dfrs-${name}`) ?? otherwise;
const keep = (name, value) => localStorage.setItem(`dfrs-${name}`, value);

/** @param {import("./store.js").Store} store */
export function theme(store) {
  const show = (name) => {
    attribute(document.documentElement, "data-theme", name === "auto" ? null : name);
    text($("theme-name"), name);
    store.set({ theme: name });
  };
  const next = () => {
    const name = THEMES[(THEMES.indexOf(kept("theme", "auto")) + 1) % THEMES.length];
    keep("theme", name);
    show(name);
  };
  show(THEMES.find((name) => name === kept("theme", "auto")) ?? "auto");
  $("theme").addEventListener("click", next);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => store.set({ theme: kept("theme", "auto") }));
  return next;
}

/** The two choices of range, which are one. @param {import("./store.js").Store} store @param {() => void} ask */
export function ranges(store, ask) {
  const choose = (range) => { keep("range", range); store.set({ range }); ask(); };
  const holders = [$("history-range"), $("gantt-range")];
  for (const holder of holders) {
    const radio = ([range, name]) => h("label", {}, h("input", { type: "radio", name: holder.id, value: range, on: { change: () => choose(range) } }), h("span", {}, name));
    holder.append(h("fieldset", {}, h("legend", { class: "hidden" }, "Range of time"), ...RANGES.map(radio)));
  }
  store.watch(["range"], ({ range }) => {
    for (const holder of holders) for (const input of holder.querySelectorAll("input")) input.checked = Number(input.value) === range;
  });
  const first = Number(kept("range", 3600));
  store.set({ range: RANGES.some(([range]) => range === first) ? first : 3600 });
  return () => choose(RANGES[(RANGES.findIndex(([range]) => range === store.state.range) + 1) % RANGES.length][0]);
}

function row(step) {
  const links = [...document.querySelectorAll("#job-table a.job")], at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
}

/** Keys of one letter; they can be turned off in the help. @param {{theme: () => void, range: () => void, close: () => void}} does */
export function keys(does) {
  const box = $("keys-on");
  box.checked = kept("keys", "on") === "on";
  box.addEventListener("change", () => keep("keys", box.checked ? "on" : "off"));
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") { $("tip").hidden = true; does.close(); return; }
    if (!box.checked || event.target.matches("input:not([type=radio]):not([type=checkbox]), select, textarea") || $("main").hidden) return;
    const act = {
      "?": () => $("help-dialog").showModal(), "/": () => $("job-user").focus(), t: does.theme, r: does.range, j: () => row(1), k: () => row(-1),
    }[event.key] ?? (/^[1-6]$/.test(event.key) ? () => go(SECTIONS[event.key - 1]) : null);
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function go(id) {
  $(id).scrollIntoView({ block: "start" });
  $(id).focus({ preventScroll: true });
}
