// A chart of uPlot as a Preact component: a legend with the values under the pointer, or the latest ones, and a text for
// readers of the screen.
import { html, useEffect, useRef, useState } from "./html.js";
import { count } from "./parts.js";
import uPlot from "./vendor/uplot.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const STROKES = ["--accent", "--warn", "--good", "--bad", "--series-5", "--series-6"];
const MINUTE = 60;
const DAY = 86400;
// Seconds between two ticks: never a part of a second.
const STEPS = [1, 5, 10, 15, 30, ...[1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * MINUTE), ...[1, 2, 7, 14, 30, 90, 365].map((days) => days * DAY)];

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const writer = (options) => {
  const format = new Intl.DateTimeFormat("en-GB", options);
  return (at) => format.format(new Date(at * 1000));
};
const clock = writer({ hour: "2-digit", minute: "2-digit" });
const toSecond = writer({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const date = writer({ day: "numeric", month: "short" });
const moment = writer({ day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const utcDate = writer({ day: "numeric", month: "short", timeZone: "UTC" });

const tick = (days, step) => (days ? utcDate : step >= DAY ? date : step >= MINUTE ? clock : toSecond);
const pointed = (days, span) => (days ? utcDate : span > DAY ? moment : toSecond);

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

// The range of a single point would be years; that of the first seconds would stretch every change.
const times = (least) => ({ data: [x] }, low, high) => (x.length ? [Math.min(x[0], x.at(-1) - least), x.at(-1)] : [low, high]);
// Half a day at both ends, for the whole of the first and the last bar.
const wholeBars = (_, low, high) => [low - DAY / 2, high + DAY / 2];
const fromZero = (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1];

const written = (value, format) => (value === null || value === undefined ? "–" : format(value));

// `x` in Unix seconds; `series` is [{label, values, dash?}]; `bars` draws bars, one for each day in UTC; `log` has a
// logarithmic axis, for evidence; `unit` is written above the axis; `least` is the shortest time of it
// in seconds; `format` writes a value, `ticks` one of the axis.
export function Chart({ label, x, series, bars = false, log = false, height = 180, unit = "", least = MINUTE, format = count, ticks = (value) => short.format(value) }) {
  const scheme = useScheme();
  const place = useRef();
  const chart = useRef();
  const [at, setAt] = useState(null);
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
      return { label: each.label, stroke: color, width: bars ? 0 : 2, fill: bars ? color : undefined, dash: each.dash, spanGaps: true, points: { show: ({ data }) => data[0].length < 3 }, ...paths };
    });
    probe.remove();
    const width = place.current.clientWidth;
    const options = {
      width,
      height,
      scales: { x: { range: bars ? wholeBars : times(least) }, y: log ? { distr: 3 } : { range: fromZero } },
      series: [{}, ...lines],
      axes: [
        { ...axis, size: 26, space: 70, incrs: bars ? STEPS.filter((step) => step >= DAY) : STEPS, values: (_, splits, __, ___, step) => splits.map(tick(bars, step)) },
        { ...axis, size: 56, values: (_, splits) => splits.map((value) => (value === null ? "" : ticks(value))) },
      ],
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      hooks: { setCursor: [({ cursor }) => setAt(cursor.idx ?? null)] },
      ...(bars ? { tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") } : {}),
    };
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
  const inside = at !== null && at < x.length;
  const value = ({ values }) => (inside ? values[at] : values.at(-1));
  return html`<div class="chart">
    ${unit && html`<p class="unit dim">${unit}</p>`}
    <div role="img" aria-label=${label} ref=${place}></div>
    <ul class="legend" aria-hidden="true">
      ${inside && html`<li class="dim">${pointed(bars, x.at(-1) - x[0])(x[at])}</li>`}
      ${series.map((each, number) => {
        const swatch = html`<span class="swatch stroke-${number % STROKES.length}"></span>`;
        return html`<li key=${each.label}>${swatch}${each.label}${(inside || !bars) && html` <b>${written(value(each), format)}</b>`}</li>`;
      })}
    </ul>
  </div>`;
}
