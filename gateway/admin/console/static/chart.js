// A chart of uPlot as a Preact component, with a text for readers of the screen.
import { html, useEffect, useRef, useState } from "./html.js";
import uPlot from "./vendor/uplot.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const STROKES = ["--accent", "--warn", "--good", "--bad"];

// Counts the changes between dark and light: a canvas has the colours with which it was drawn.
function useScheme() {
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    const changed = () => setChanges((number) => number + 1);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", changed);
    addEventListener("theme", changed);
    return () => {
      dark.removeEventListener("change", changed);
      removeEventListener("theme", changed);
    };
  }, []);
  return changes;
}

// The range of a single point would be years.
const range = ({ data }, low, high) => (data[0].length === 1 ? [low - 60, low + 60] : [low, high]);

// `x` in Unix seconds; `series` is [{label, values, dash?}]; `bars` draws bars; `log` has a logarithmic axis, for evidence.
export function Chart({ label, x, series, bars = false, log = false, height = 180 }) {
  const scheme = useScheme();
  const place = useRef();
  const chart = useRef();
  const data = [x, ...series.map((each) => each.values)];
  const shape = series.map((each) => each.label).join("\n");
  useEffect(() => {
    const probe = document.createElement("span");
    place.current.append(probe);
    const stroke = (name) => {
      probe.style.color = colour(name);
      return getComputedStyle(probe).color;
    };
    const axis = { stroke: stroke("--dim"), grid: { stroke: stroke("--line"), width: 1 }, ticks: { show: false } };
    const paths = bars ? { paths: uPlot.paths.bars({ size: [0.7, 40] }) } : {};
    const lines = series.map((each, at) => {
      const color = stroke(STROKES[at % STROKES.length]);
      return { label: each.label, stroke: color, width: bars ? 0 : 2, fill: bars ? color : undefined, dash: each.dash, points: { show: x.length < 3 }, ...paths };
    });
    probe.remove();
    const width = place.current.clientWidth;
    const options = { width, height, scales: { x: { range }, ...(log ? { y: { distr: 3 } } : {}) }, series: [{}, ...lines], axes: [axis, { ...axis, size: 60 }], cursor: { y: false } };
    chart.current = new uPlot(options, data, place.current);
    const watcher = new ResizeObserver(() => {
      // The element is gone already when the screen changes.
      if (place.current) chart.current?.setSize({ width: place.current.clientWidth, height });
    });
    watcher.observe(place.current);
    return () => {
      watcher.disconnect();
      chart.current.destroy();
    };
  }, [shape, bars, log, scheme]);
  useEffect(() => chart.current?.setData(data), [x, ...series.map((each) => each.values)]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${place}></div>`;
}
