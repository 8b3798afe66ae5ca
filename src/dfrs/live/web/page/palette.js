// One colour a job, from its number: the same on every screen, today and tomorrow, and the same list as in the reports.

/** Told apart by hue and by lightness, also by the colour-blind. */
export const COLOURS = [
  "#4477aa", "#ddcc77", "#cc6677", "#44aa99", "#aa4499", "#88ccee", "#999933", "#7a6fc0", "#ee8866", "#228b57",
  "#eeb4c8", "#8c5a3c", "#5fb3d9", "#b8c468", "#992f5c",
];

/** @param {number} job */
export const colourOf = (job) => COLOURS[job % COLOURS.length];

function luminance(hex) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const value = parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Black or white, whichever is read better on a colour (always at least 4.5 to 1). */
export const inkOn = (hex) => (luminance(hex) > 0.179 ? "#000000" : "#ffffff");

const probe = document.createElement("i");

/** The present value of a colour of the style sheet, for canvases. @param {string} name as --ink */
export function themed(name) {
  if (!probe.isConnected) {
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.setProperty("color", `var(${name})`);
  return getComputedStyle(probe).color;
}
