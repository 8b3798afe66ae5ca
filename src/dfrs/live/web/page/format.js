// Figures as words: every number of the page is written here, so that it is written the same everywhere.

const NONE = "–";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A fraction or CPU, with a fixed number of decimals; a dash for none. */
export const number = (value, decimals = 2) => (value === null || value === undefined ? NONE : value.toFixed(decimals));

/** A count with separators of thousands. */
export const count = (value) => (value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en"));

/** @param {number} n @param {string} one @param {string} [many] */
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

/** Bytes in the largest unit that leaves at least 1. */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit++; }
  return `${value >= 100 || unit === 0 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** A part of some bytes and all of them, in the unit of all. */
export function bytesOf(part, whole) {
  const unit = whole >= 1 ? Math.min(UNITS.length - 1, Math.floor(Math.log2(whole) / 10)) : 0, shown = (value) => value / 1024 ** unit;
  const decimals = unit > 0 && shown(whole) < 100 ? 1 : 0;
  return `${shown(part).toFixed(decimals)} of ${Number(shown(whole).toFixed(decimals))} ${UNITS[unit]}`;
}

/** A length of time in seconds, with its two largest units. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const whole = Math.max(0, Math.round(seconds)), two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${two(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A length of time in seconds, with its largest unit only. */
export const age = (seconds) => duration(seconds).split(" ").slice(0, 2).join(" ");

const hms = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hm = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

/** Wall clock of seconds since 1970, in the reader's time zone. */
export const clock = (time) => hms.format(time * 1000);
export const shortClock = (time) => hm.format(time * 1000);
const dm = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
export const shortDate = (time) => dm.format(time * 1000);
export const date = (time) => full.format(time * 1000);

/** Names with how many times each occurs: n1 ×2, n2. At most `most` of them. */
export function names(list, most = 3) {
  const times = new Map();
  for (const name of list) times.set(name, (times.get(name) ?? 0) + 1);
  const all = [...times].map(([name, n]) => (n > 1 ? `${name} ×${n}` : name));
  return all.length <= most ? all.join(", ") : `${all.slice(0, most).join(", ")} and ${all.length - most} more`;
}

/** A job's need with its error bar, in cores per task. */
export function need(job) {
  const error = job.need_error_cores;
  return error === null ? number(job.need_cores) : `${number(job.need_cores)} ± ${number(error)}`;
}

const LEAST_SPAN_S = 120;

/**
 * The first time that a diagram shows: `range` seconds ago, or where what it draws begins if that is later.
 * @param {number} now @param {number} range @param {number[]} begins
 */
export const firstTime = (now, range, begins) => Math.max(now - range, Math.min(now - LEAST_SPAN_S, begins.reduce((a, b) => Math.min(a, b), now)));

/** Round times for an axis from `from` to `to` (seconds), at most `most` of them. */
export function ticks(from, to, most) {
  const steps = [10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];
  const step = steps.find((one) => (to - from) / one <= most) ?? steps.at(-1), found = [];
  const zone = new Date(to * 1000).getTimezoneOffset() * 60;
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) found.push(t);
  return found;
}
