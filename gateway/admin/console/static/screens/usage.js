// The usage of the whole installation, or of one tenant, in a period: by one label, with shares, trends and a forecast.
import { html } from "../html.js";
import { get } from "../api.js";
import { Field, Loading, Notice, To, count, money, share, useLoaded } from "../parts.js";
import { Chart } from "../chart.js";
import { Sorted } from "../table.js";

const DAY = 86400000;
const LABELS = { tenant: "tenant", team: "team", model: "model", key: "key", user: "user", arm: "arm" };
const NONE = { tenant: "(no tenant)", team: "(no team)", model: "(no model)", key: "(no key)", user: "(no user)", arm: "(no arm)" };
const OTHERS = "(others)";
// The label that a click on a value leads to.
const NEXT = { tenant: "model", team: "model", model: "key", key: "model", user: "model", arm: "model" };
const date = (time) => new Date(time).toISOString().slice(0, 10);
const month = (back) => {
  const now = new Date();
  return Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - back, 1);
};
const tomorrow = () => Date.parse(date(Date.now())) + DAY;
const PERIODS = {
  month: ["this month", () => [month(0), tomorrow()]],
  last: ["last month", () => [month(1), month(0)]],
  7: ["7 days", () => [tomorrow() - 7 * DAY, tomorrow()]],
  30: ["30 days", () => [tomorrow() - 30 * DAY, tomorrow()]],
  90: ["90 days", () => [tomorrow() - 90 * DAY, tomorrow()]],
  365: ["a year", () => [tomorrow() - 365 * DAY, tomorrow()]],
};

// The address has the label, the period, and the chosen values: usage/model/30/tenant=acme.
const read = ([by, period, ...tests], session) => ({
  by: LABELS[by] && !(session.tenant && by === "tenant") ? by : session.tenant ? "model" : "tenant",
  period: PERIODS[period] ? period : "month",
  tests: tests.map((text) => [text.slice(0, text.indexOf("=")), text.slice(text.indexOf("=") + 1)]).filter(([label]) => LABELS[label]),
});
const address = ({ by, period, tests }) => ["usage", by, period, ...tests.map(([label, value]) => `${label}=${value}`)];

export default function Usage({ session, parts, go }) {
  const chosen = read(parts, session);
  const { by, period, tests } = chosen;
  const [from, to] = PERIODS[period][1]().map(date);
  const query = { by, from, to, ...Object.fromEntries(tests) };
  const { value, error } = useLoaded((signal) => get("/admin/usage/overview", query, { signal }), [JSON.stringify(query)]);
  if (error?.code === "usage_not_recorded")
    return html`<${Notice}>The configuration has no section <code>usage</code>, so no usage is recorded.<//>`;
  const show = (change) => go(...address({ ...chosen, ...change }));
  const labels = Object.entries(LABELS).filter(([label]) => !(session.tenant && label === "tenant"));
  const exported = (format) => `/admin/usage?${new URLSearchParams({ ...query, by: [...new Set(["tenant", by])].join(), format })}`;
  return html`<div class="row">
      <${Field} label="Period" value=${period} onChange=${(event) => show({ period: event.target.value })}>
        ${Object.entries(PERIODS).map(([key, [title]]) => html`<option key=${key} value=${key} selected=${key === period}>${title}</option>`)}
      <//>
      <${Field} label="By" value=${by} onChange=${(event) => show({ by: event.target.value })}>
        ${labels.map(([key, title]) => html`<option key=${key} value=${key} selected=${key === by}>${title}</option>`)}
      <//>
      <a class="button" href=${exported("csv")} download=${`usage-by-${by}.csv`}>CSV</a>
      <a class="button" href=${exported("focus")} download="usage-focus.csv">FOCUS</a>
    </div>
    ${tests.length > 0 &&
    html`<ul class="chips" aria-label="Chosen values">
      ${tests.map(
        ([label, text]) => html`<li key=${label}>${label} <b>${text || NONE[label]}</b>
          <button type="button" class="small" aria-label=${`All of ${label}`} onClick=${() => show({ tests: tests.filter(([each]) => each !== label), by: label })}>×</button></li>`,
      )}
    </ul>`}
    <${Notice} error=${error} />
    ${!value && !error && html`<${Loading} />`}
    ${value && html`<${Overview} value=${value} chosen=${chosen} />`}`;
}

function Overview({ value, chosen }) {
  const { totals, rows, days, by } = value;
  const priced = totals.filter((total) => total.currency);
  const requests = totals.reduce((sum, total) => sum + total.requests, 0);
  return html`<dl class="numbers">
      ${priced.map((total) => html`<${Total} key=${total.currency} total=${total} month=${value.forecast.month} />`)}
      <div><dt>requests</dt><dd>${count(requests)}</dd></div>
      <div><dt>failures</dt><dd>${count(totals.reduce((sum, total) => sum + total.failures, 0))}</dd></div>
      <div><dt>tokens</dt><dd>${count(totals.reduce((sum, total) => sum + total.prompt_tokens + total.completion_tokens, 0))}</dd></div>
    </dl>
    <${Days} value=${value} days=${days} currencies=${priced.map((total) => total.currency)} />
    <${Sorted} key=${by} caption=${`Usage by ${by}`} first="Amount" columns=${columns(by, chosen).filter(({ title }) => title !== "Rows" || rows.some((row) => row.rows > 0))} rows=${rows}
      id=${(row) => `${row.tenant} ${row.value} ${row.currency}`} empty="No request in this period." />
    ${value.others > 0 && html`<p class="dim">${count(value.others)} smaller ones are summed as ${OTHERS}: the CSV file has all of them.</p>`}
    <p class="dim">Trend: against the ${Math.round((Date.parse(value.to) - Date.parse(value.from)) / DAY)} days before.
      Forecast of ${value.forecast.month}: ${value.forecast.method}. Days are in UTC.</p>`;
}

const Total = ({ total, month }) => html`
  <div><dt>${total.currency}<${Trend} value=${total.trend} /></dt><dd>${money(Number(total.amount))}</dd></div>
  <div><dt>${total.currency} at the end of ${month} (forecast)</dt><dd>${money(Number(total.forecast))}</dd></div>`;

const percent = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 0, signDisplay: "exceptZero" });
const Trend = ({ value }) => (value === null ? "" : html` <span>(${percent.format(value)})</span>`);

const amount = (text, row) => (text === undefined ? "–" : `${money(Number(text))} ${row.currency}`);

const columns = (by, chosen) => [
  { title: by[0].toUpperCase() + by.slice(1), by: (row) => row.value, cell: (row) => html`<${Value} by=${by} row=${row} chosen=${chosen} />` },
  { title: "Amount", number: true, by: (row) => Number(row.amount ?? 0), cell: (row) => amount(row.amount, row) },
  { title: "Share", number: true, by: (row) => row.share, cell: (row) => html`<progress max="1" value=${row.share} aria-label=${`Share of ${row.value || NONE[by]}`}></progress> ${share(row.share)}` },
  { title: "Trend", number: true, by: (row) => row.trend ?? Infinity, cell: (row) => (row.trend === null ? "new" : percent.format(row.trend)) },
  { title: "Forecast", number: true, by: (row) => Number(row.forecast ?? 0), cell: (row) => amount(row.forecast, row) },
  { title: "Requests", number: true, by: (row) => row.requests, cell: (row) => count(row.requests) },
  { title: "Failures", number: true, by: (row) => row.failures, cell: (row) => count(row.failures) },
  { title: "Prompt tokens", number: true, by: (row) => row.prompt_tokens, cell: (row) => count(row.prompt_tokens) },
  { title: "Completion tokens", number: true, by: (row) => row.completion_tokens, cell: (row) => count(row.completion_tokens) },
  { title: "Rows", number: true, by: (row) => row.rows, cell: (row) => count(row.rows) },
];

// A link to the parts of a value. A team and a key are those of their tenant.
function Value({ by, row, chosen }) {
  const name = row.value || NONE[by];
  const owner = row.tenant && !chosen.tests.some(([label]) => label === "tenant") ? html` <small>${row.tenant}</small>` : "";
  if (row.value === OTHERS && !row.tenant) return name;
  const own = [...(owner ? [["tenant", row.tenant]] : []), [by, row.value]];
  const tests = [...chosen.tests.filter(([label]) => !own.some(([each]) => each === label)), ...own];
  const taken = new Set(tests.map(([label]) => label));
  const next = [NEXT[by], "model", "key", "team", "tenant", "arm"].find((label) => !taken.has(label));
  if (by === "arm" || next === undefined) return html`${name}${owner}`;
  return html`<${To} to=${address({ ...chosen, by: next, tests })}>${name}<//>${owner}`;
}

function Days({ value, days, currencies }) {
  const first = Date.parse(value.from);
  const length = Math.round((Date.parse(value.to) - first) / DAY);
  const x = Array.from({ length }, (_, at) => (first + at * DAY) / 1000);
  const values = (of) => {
    const sums = x.map(() => 0);
    for (const row of days) sums[Math.round((Date.parse(row.day) - first) / DAY)] += of(row);
    return sums;
  };
  const charts = currencies.length
    ? currencies.map((currency) => ({ label: currency, values: values((row) => (row.currency === currency ? row.amount : 0)), format: money }))
    : [{ label: "requests", values: values((row) => row.requests), format: count }];
  return charts.map(({ label, values: series, format }) => html`<figure class="card" key=${label}>
    <figcaption>${label} a day</figcaption>
    <${Chart} label=${`${label} by day: ${format(series.reduce((a, b) => a + b, 0))} in the period`} x=${x} series=${[{ label, values: series }]} format=${format} bars />
  </figure>`);
}
