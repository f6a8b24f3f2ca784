// The charts of the live screen: of all requests, or of the largest models, tenants or pools.
import { html } from "../../html.js";
import { count, money, seconds } from "../../parts.js";
import { Chart } from "../../chart.js";

const MOST_SERIES = 6;
// Seconds of the shortest axis.
const LEAST = 300;
export const UNNAMED = { models: "(no model)", tenants: "(no tenant)", pools: "(no pool)" };
export const named = (by, name) => name || UNNAMED[by];

// Each chart: its values of all requests by label, or one value of each name.
const CHARTS = [
  { title: "Requests", unit: "a second", all: { requests: "requests", failures: "failures", refused: "refused" }, each: "requests" },
  { title: "Failures", unit: "a second", each: "failures" },
  { title: "Refused", unit: "a second", each: "refused" },
  { title: "Time taken", unit: "95 of 100 take less (p95)", all: { p50: "p50", p95: "p95" }, each: "p95", write: seconds },
  { title: "Time to first token", unit: "95 of 100 take less (p95)", all: { first_p50: "p50", first_p95: "p95" }, each: "first_p95", write: seconds },
  { title: "Tokens", unit: "a second", all: { tokens: "tokens" }, each: "tokens" },
  { title: "Rows of tensors", unit: "a second", all: { rows: "rows" }, each: "rows", optional: true },
];

// The points of the last `span` seconds: minutes of the history, then the frames of this page.
function points({ past, history }, by, span, now) {
  const first = past[0]?.at ?? now;
  const from = now - span;
  const minutes = [];
  for (let at = 0; at < history.length; at += 1) {
    const middle = history.from + (at + 0.5) * history.step;
    if (middle >= from && middle < first - 5) minutes.push({ at: middle, place: at });
  }
  const frames = past.filter((each) => each.at >= from);
  return { x: [...minutes.map((each) => each.at), ...frames.map((each) => each.at)], minutes, frames };
}

// The names with a series: those of the history, then the largest of now.
function namesOf({ history, frame }, by) {
  const names = history.series.map((each) => each.name);
  for (const { name } of frame.rates[by]) if (!names.includes(name)) names.push(name);
  return names.slice(0, MOST_SERIES);
}

export function Charts({ live, by, span }) {
  const now = live.frame.at;
  const { x, minutes, frames } = points(live, by, span, now);
  const whole = live.history.series[0];
  const values = (of, name) => [
    ...minutes.map(({ place }) => {
      const series = by ? live.history.series.find((each) => each.name === name) : whole;
      return series ? of(series, place) : null;
    }),
    ...frames.map(({ rates }) => {
      const one = by ? rates[by].find((each) => each.name === name) : rates.all;
      return one ? of(one) : by ? 0 : null;
    }),
  ];
  const column = (key) => (from, place) => (place === undefined ? from[key] : from[key][place]);
  const lines = (chart) =>
    by
      ? namesOf(live, by).map((name) => ({ label: named(by, name), values: values(column(chart.each), name) }))
      : Object.entries(chart.all).map(([key, label]) => ({ label, values: values(column(key)) }));
  const charts = CHARTS.filter((chart) => (by || chart.all) && (!chart.optional || used(live, chart.each)));
  return html`<div class="cards">
    ${charts.map((chart) => html`<${One} key=${chart.title} ...${chart} unit=${by || chart.write === undefined ? chart.unit : ""} x=${x} lines=${lines(chart)} />`)}
    ${currencies(live).map(
      (currency) => html`<${One} key=${currency} title=${`Money (${currency})`} unit=${`${currency} an hour`} write=${money} x=${x}
        lines=${(by ? namesOf(live, by) : [undefined]).map((name) => ({
          label: name === undefined ? currency : named(by, name),
          values: values((from, place) => (place === undefined ? (from.money[currency] ?? 0) : (from.money[currency]?.[place] ?? 0)), name),
        }))} />`,
    )}
  </div>`;
}

const used = ({ frame, history }, key) => frame.rates.all[key] > 0 || history.series.some((each) => each[key].some((value) => value > 0));

const currencies = ({ frame, history }) =>
  [...new Set([...Object.keys(frame.rates.all.money), ...history.series.flatMap((each) => Object.keys(each.money))])].sort();

function One({ title, unit, write, x, lines }) {
  const format = write ?? count;
  const latest = lines.map((line) => `${line.label} ${format(line.values.at(-1) ?? 0)}`).join(", ");
  return html`<figure class="card"><figcaption>${title}</figcaption>
    <${Chart} label=${`${title}: ${latest}`} unit=${unit} height=${150} least=${LEAST} x=${x} series=${lines} format=${format} ticks=${write} />
  </figure>`;
}
