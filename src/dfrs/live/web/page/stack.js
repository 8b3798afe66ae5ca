// Where a Gantt's blocks are: the bars of a node, stacked at each instant, cut wherever one begins or ends.

const LEAST_PAUSED = 0.12; // of a band: a paused job holds no CPU, yet is to be seen

/**
 * @typedef {object} Block
 * @property {object} bar
 * @property {number} begin @property {number} end wall clock, s
 * @property {number} low @property {number} high fractions of the band, from its bottom
 */

/**
 * Blocks of one node. Running jobs are at the bottom, in the order of their numbers; paused ones on top of them.
 * @param {object[]} bars of one node
 * @param {number} cpus of it
 * @param {number} from @param {number} to what is seen of time
 * @returns {Block[]}
 */
export function stack(bars, cpus, from, to) {
  const seen = bars.map((bar) => ({ bar, begin: Math.max(from, bar.begin), end: Math.min(to, bar.end ?? to) }))
    .filter(({ begin, end }) => end > begin).sort((a, b) => a.begin - b.begin);
  const cuts = [...new Set(seen.flatMap(({ begin, end }) => [begin, end]))].sort((a, b) => a - b);
  const blocks = [], open = new Map();
  let active = [], next = 0;
  for (let k = 0; k + 1 < cuts.length; k++) {
    const begin = cuts[k], end = cuts[k + 1];
    active = active.filter((one) => one.end > begin);
    while (next < seen.length && seen[next].begin <= begin) active.push(seen[next++]);
    active.sort((a, b) => a.bar.paused - b.bar.paused || a.bar.job - b.bar.job || a.bar.rank - b.bar.rank);
    const heights = active.map(({ bar }) => Math.max(bar.share_cores / cpus, bar.paused ? LEAST_PAUSED : 0));
    const scale = Math.max(1, heights.reduce((a, b) => a + b, 0));
    let low = 0;
    active.forEach(({ bar }, i) => {
      const high = low + heights[i] / scale, last = open.get(bar);
      if (last && last.end === begin && Math.abs(last.low - low) < 1e-9 && Math.abs(last.high - high) < 1e-9) last.end = end;
      else {
        const block = { bar, begin, end, low, high };
        blocks.push(block);
        open.set(bar, block);
      }
      low = high;
    });
  }
  return blocks;
}
