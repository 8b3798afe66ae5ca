// Tables that are sorted by their headings and shown in parts, and what stands in their cells.

const element = (tag, name, ...parts) => {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...parts);
  return node;
};

const COLLATOR = new Intl.Collator("en", { numeric: true });

// Rows may be anything. A column has a title, `key` (what a row is sorted by, a number or a text), `fill` (makes the
// cell), `first` (the direction of the first click, 1 or -1), and perhaps `text`: aligned as words.
class Table {
  constructor(box, label, columns, size = 50) {
    Object.assign(this, { columns, size, rows: [], from: 0, by: -1, sign: 1 });
    this.heads = columns.map((column, k) => {
      const button = element("button", "", column.title), head = element("th", column.text ? "words" : "", button);
      button.type = "button";
      head.scope = "col";
      button.addEventListener("click", () => this.sort(k, this.by === k ? -this.sign : column.first || 1));
      return head;
    });
    this.body = element("tbody");
    this.scroll = element("div", "scroll", element("table", "", element("thead", "", element("tr", "", ...this.heads)), this.body));
    this.scroll.tabIndex = 0;
    this.scroll.setAttribute("role", "region");
    this.scroll.setAttribute("aria-label", label);
    this.where = element("span", "hint");
    this.steps = ["previous", "next"].map((name, k) => {
      const button = element("button", "", name);
      button.type = "button";
      button.addEventListener("click", () => { this.from += k ? this.size : -this.size; this.fill(); });
      return button;
    });
    this.pager = element("div", "pager", this.steps[0], this.where, this.steps[1]);
    box.replaceChildren(this.scroll, this.pager);
  }

  show(rows) {
    this.rows = rows;
    this.sort(this.by, this.sign);
  }

  // Rows without a value come last either way; equal ones stay as they were given.
  sort(by, sign) {
    Object.assign(this, { by, sign, from: 0, order: this.rows });
    if (by >= 0) {
      const keys = this.rows.map(this.columns[by].key), compare = this.columns[by].text ? COLLATOR.compare : (a, b) => a - b || 0;
      const none = keys.map((key) => (key === null || Number.isNaN(key) ? 1 : 0));
      this.order = rowsOf(keys.length).sort((a, b) => none[a] - none[b] || (none[a] ? 0 : sign * compare(keys[a], keys[b])) || a - b).map((k) => this.rows[k]);
    }
    this.heads.forEach((head, k) => head.setAttribute("aria-sort", k !== by ? "none" : sign > 0 ? "ascending" : "descending"));
    this.fill();
  }

  fill() {
    const { from, size, order } = this, to = Math.min(from + size, order.length);
    this.body.replaceChildren(...order.slice(from, to).map((row) => {
      const cells = this.columns.map((column) => {
        const cell = element("td", column.text ? "words" : "");
        column.fill(cell, row);
        return cell;
      });
      return element("tr", "", ...cells);
    }));
    this.where.textContent = order.length ? `${WHOLE.format(from + 1)}–${WHOLE.format(to)} of ${WHOLE.format(order.length)}` : "none";
    this.pager.hidden = order.length > 0 && order.length <= size;
    this.steps[0].disabled = from === 0;
    this.steps[1].disabled = to === order.length;
  }

  // Bring a column into view beside the first one, which stays.
  reveal(k) {
    this.scroll.scrollLeft = 0;
    const [view, first, head] = [this.scroll, this.heads[0], this.heads[k]].map((node) => node.getBoundingClientRect());
    if (head.right > view.right) this.scroll.scrollLeft = head.left - first.right;
  }
}

function say(text) {
  $("said").textContent = text;
}

// Some browsers give a page from disk no clipboard: then the command stays selected, to be copied by hand.
async function copy(text, button, code) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = document.execCommand("copy") ? "copied" : "selected";
  }
  say(`command ${button.textContent}`);
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}

// A path, whatever it looks like: never an address of another kind.
const hrefOf = (path) => "./" + path.split("/").map(encodeURIComponent).join("/");

// A run's name: it leads to the run's own page, or stands over the command that makes that, if it can have one.
function fillRun(cell, page, k) {
  cell.classList.add("of-run");
  const link = page.runs.link(k), name = page.runs.name(k), failed = page.runs.failed(k);
  const title = element(link === null ? "span" : "a", "run", name);
  if (link !== null) title.href = hrefOf(link);
  cell.append(title);
  if (failed !== null) cell.append(" ", element("em", "badge", "failed"));
  const command = page.runs.command(k);
  if (link !== null || command === null) return;
  const code = element("code", "", command), button = element("button", "copy", "copy");
  code.title = code.textContent;
  button.type = "button";
  button.setAttribute("aria-label", `copy the command that makes ${name}`);
  button.addEventListener("click", () => copy(code.textContent, button, code));
  cell.append(element("div", "command", button, code));
}

function fillEntry(cell, page, entry) {
  cell.classList.add("entry");
  cell.append(swatch(entry), page.entries[entry]);
}

// Number of runs and mean, over the interval.
function fillMean(cell, mark) {
  if (!mark) { cell.append("–"); return; }
  cell.append(element("small", "", `n ${WHOLE.format(mark.count)}`), element("b", "", figure(mark.mean)), element("small", "interval", interval(mark.low, mark.high)));
}

function fillOutcomes(cell, row) {
  const parts = [["won", row.wins], ["tied", row.ties], ["lost", row.losses]], bar = element("span", "outcomes");
  for (const [name, count] of parts) {
    const part = element("i", name);
    part.style.flexGrow = count;
    bar.append(part);
  }
  bar.setAttribute("aria-hidden", true);
  cell.append(bar, element("small", "", parts.map(([name, count]) => `${WHOLE.format(count)} ${name}`).join(" · ")));
}

// The ratio, and where it lies around 1 on the scale of all the rows: `span` is the greatest factor from 1.
function fillRatio(cell, row, span) {
  const w = 132, at = (v) => w / 2 + (Math.min(Math.max(Math.log(v) / Math.log(span), -1), 1) * (w - 14)) / 2;
  const words = element("span", "figures", element("b", "", figure(row.ratio)), element("small", "interval", interval(row.low, row.high)));
  const svg = make("svg", { viewBox: `0 0 ${w} 20`, width: w, height: 20, "aria-hidden": true });
  svg.append(make("line", { class: "one", x1: w / 2, x2: w / 2, y1: 0, y2: 20 }));
  if (row.low > 0 && Number.isFinite(row.high)) svg.append(make("line", { class: "whisker", x1: at(row.low), x2: at(row.high), y1: 10, y2: 10, stroke: styleOf(row.entry).colour }));
  if (row.ratio > 0) {
    const dot = marker(row.entry, 4.2);
    dot.setAttribute("transform", `translate(${at(row.ratio)} 10)`);
    svg.append(dot);
  }
  cell.append(element("span", "ratio", svg, words));
}

const probability = (p) => (Number.isNaN(p) ? "–" : p < 0.001 ? "< 0.001" : p.toFixed(3));
