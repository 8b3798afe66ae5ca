// The REST API and its stream of changes. The token is kept for this tab only and is sent in a header, never in an address.

const ROOT = "/api/v1";
const KEY = "dfrs-token";
const SILENCE_MS = 45_000; // the stream says something every 15 seconds
const PATIENCE_MS = 20_000;

/** What the controller answered instead of data. `status` is 0 if it did not answer. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Take a token out of the address (#token=…) so that it is neither seen, bookmarked nor in the history. */
export function takeToken() {
  const fragment = new URLSearchParams(location.hash.slice(1)), token = fragment.get("token");
  if (token === null) return;
  sessionStorage.setItem(KEY, token);
  fragment.delete("token");
  const rest = fragment.toString();
  history.replaceState(null, "", location.pathname + (rest ? "#" + rest : ""));
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const forgetToken = () => sessionStorage.removeItem(KEY);
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

function headers() {
  const token = sessionStorage.getItem(KEY);
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

async function detailOf(response) {
  try {
    const { detail } = await response.json();
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((one) => one.msg ?? String(one)).join("; ");
  } catch { /* not JSON: the status says enough */ }
  return `the controller answered ${response.status}`;
}

async function request(path, options, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    if (value !== null && value !== undefined) for (const one of [value].flat()) query.append(name, one);
  const address = ROOT + path + (query.size ? "?" + query : "");
  let response;
  try {
    response = await fetch(address, { ...options, headers: headers(), cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  } catch {
    throw new ApiError(0, "the controller does not answer");
  }
  if (!response.ok) throw new ApiError(response.status, await detailOf(response));
  try {
    return response.status === 204 ? null : await response.json();
  } catch {
    throw new ApiError(0, "the controller's answer was cut off");
  }
}

/** JSON of a resource. @param {string} path @param {object} [parameters] lists are repeated, null is left out */
export const get = (path, parameters) => request(path, { method: "GET" }, parameters);

/** Ask for an action. @param {string} path */
export const post = (path) => request(path, { method: "POST" });

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function listen(onChange, onOpen) {
  const stop = new AbortController();
  let watch = setTimeout(() => stop.abort(), SILENCE_MS);
  try {
    const response = await fetch(ROOT + "/changes", { headers: headers(), cache: "no-store", signal: stop.signal });
    if (!response.ok) throw new ApiError(response.status, await detailOf(response));
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => stop.abort(), SILENCE_MS);
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) onChange();
    }
  } finally {
    clearTimeout(watch);
  }
}

/**
 * Follow the stream of changes for ever; after a loss, connect again, soon at first and then more and more rarely.
 * @param {() => void} onChange something changed, or 15 seconds went by
 * @param {(up: boolean, error: Error|null) => void} onState
 */
export async function follow(onChange, onState) {
  for (let wait = 500; ; wait = Math.min(wait * 2, 15_000)) {
    let error = null;
    try {
      await listen(onChange, () => { wait = 500; onState(true, null); });
    } catch (problem) {
      error = problem;
    }
    onState(false, error);
    if (error?.status === 401) return;
    await pause(wait * (0.75 + Math.random() / 2));
  }
}
