{
  light(rgb) {
    const linear = rgb.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  },
  ratio(one, other) {
    const [a, b] = [this.light(one), this.light(other)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  },
  parse(text) {
    const numbers = text.match(/[\d.]+/g).map(Number);
    return text.startsWith("color(") ? numbers.map((v, k) => (k < 3 ? 255 * v : v)) : numbers;
  },
  ground(node) {
    for (let at = node; at; at = at.parentElement) {
      const colour = this.parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  },
  /** The least contrast of text and ground in what each selector finds. */
  contrast(selectors) {
    const worst = {};
    for (const selector of selectors) for (const node of document.querySelectorAll(selector)) {
      if (!node.getClientRects().length) continue;
      const drawn = node instanceof SVGElement, style = getComputedStyle(node);
      const ratio = this.ratio(this.parse(drawn ? style.fill : style.color), this.ground(drawn ? node.ownerSVGElement.parentElement : node));
      worst[selector] = Math.min(worst[selector] ?? 21, ratio);
    }
    return worst;
  },
  /** The least contrast of each job's colour and its label, after the palette's own choice. */
  async labelContrast() {
    const { COLOURS, inkOn } = await import("/static/palette.js");
    const parts = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
    return COLOURS.map((one) => this.ratio(parts(one), parts(inkOn(one))));
  },
  async stacked(...given) {
    const { stack } = await import("/static/stack.js");
    return stack(...given);
  },
  /** What can be operated or stands for a picture, and has no name. */
  nameless() {
    const kinds = "button, input, select, a[href], [role=img], [role=application], [role=region], svg[tabindex], dialog";
    const named = (node) => node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length
      || document.getElementById(node.getAttribute("aria-labelledby"));
    return [...document.querySelectorAll(kinds)].filter((node) => node.getClientRects().length && !named(node))
      .map((node) => node.outerHTML.slice(0, 120));
  },
  /** What goes beyond the right edge, outside of boxes that are meant to scroll or to cut. */
  overflowing() {
    const meant = ".scroll, .track, .hidden, thead, pre, #event-list, .skip, svg";
    return [...document.querySelectorAll("body *")].filter((node) => node.getClientRects().length && !node.closest(meant))
      .filter((node) => node.getBoundingClientRect().right > innerWidth + 1).map((node) => node.outerHTML.slice(0, 120));
  },
  /** How many colours cover more than 300 pixels of a canvas. */
  paintedColours(selector) {
    const canvas = document.querySelector(selector), times = new Map();
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    for (const pixel of new Uint32Array(data.buffer)) times.set(pixel, (times.get(pixel) ?? 0) + 1);
    return [...times.values()].filter((n) => n > 300).length;
  },
  focusIsIn(selector) {
    return document.activeElement === document.body || document.querySelector(selector).contains(document.activeElement);
  },
  focused() {
    const { activeElement: node } = document;
    return node.id || node.getAttribute("href") || node.getAttribute("aria-label");
  },
  /** All figures of the page as they are written, and the number of their snapshot. */
  numbers() {
    const words = (node) => node.textContent.replace(/\s+/g, " ").trim();
    const all = (selector, root = document) => [...root.querySelectorAll(selector)];
    const one = (selector, root = document) => words(root.querySelector(selector));
    return {
      sequence: Number(document.querySelector("#main").dataset.snapshot), title: document.title,
      hero: one(".hero b"), beside: one(".beside"), aside: one(".aside"),
      tiles: Object.fromEntries(all(".tile").map((tile) => [...tile.children].map(words)).map(([name, ...rest]) => [name, rest])),
      nodes: all("#node-list > .node").map((node) => ({
        name: one(".name", node), figures: all(".figures span:not([hidden])", node).map(words),
        tasks: all(".block", node).map((block) => block.getAttribute("aria-label")),
      })),
      jobs: all("#job-table tbody tr").map((row) => Object.fromEntries([...row.children].map((cell) => [cell.dataset.label, words(cell)]))),
      queue: all("#queue-list tbody tr").map((row) => one("a.job b", row)),
      ends: Object.fromEntries(all("#chart text.end").map((end) => [end.classList[1], words(end.children[0])])),
      drawer: Object.fromEntries(all("#drawer dl dt").map((name) => [words(name), words(name.nextElementSibling)])),
    };
  },
}
