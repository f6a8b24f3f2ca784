// What a tenant has used and spent: by day, and by model or key. Exports are of the same period.
import { html, useState } from "../../html.js";
import { get, path } from "../../api.js";
import { Field, Loading, Notice, count, money, useLoaded } from "../../parts.js";
import { Chart } from "../../chart.js";
import { Table } from "../../table.js";

const DAY = 86400;
const PERIODS = { 7: "7 days", 30: "30 days", 90: "90 days", 365: "a year" };
const MOST_ROWS = 200;
const LABELS = { model: "model", team: "team", key: "key", arm: "arm" };

const day = (daysAgo) => new Date(Date.now() - daysAgo * DAY * 1000).toISOString().slice(0, 10);

export function Spend({ tenant }) {
  const [days, setDays] = useState("30");
  const [by, setBy] = useState("model");
  const span = { tenant, from: day(Number(days) - 1) };
  const { value, error } = useLoaded(
    async (signal) => {
      const [daily, grouped] = await Promise.all([
        get("/admin/usage", { ...span, by: "tenant", per: "day" }, { signal }),
        get("/admin/usage", { ...span, by, limit: MOST_ROWS }, { signal }),
      ]);
      return { daily: daily.usage, rows: grouped.usage, more: grouped.next !== null };
    },
    [tenant, days, by],
  );
  if (error?.code === "usage_not_recorded")
    return html`<${Notice}>The configuration has no section <code>usage</code>, so no usage is recorded.<//>`;
  const query = (format) => `/admin/usage?${new URLSearchParams({ ...span, by: "team,key,model", per: "day", format })}`;
  const month = new Date().toISOString().slice(0, 7);
  return html`<div class="row">
      <${Field} label="Period" value=${days} onChange=${(event) => setDays(event.target.value)}>
        ${Object.entries(PERIODS).map(([key, label]) => html`<option key=${key} value=${key}>${label}</option>`)}
      <//>
      <${Field} label="By" value=${by} onChange=${(event) => setBy(event.target.value)}>
        ${Object.entries(LABELS).map(([key, label]) => html`<option key=${key} value=${key}>${label}</option>`)}
      <//>
      <a class="button" href=${query("csv")} download="usage.csv">CSV</a>
      <a class="button" href=${query("focus")} download="usage-focus.csv">FOCUS</a>
      <a class="button" href=${query("parquet")} download="usage-focus.parquet">Parquet</a>
      <a class="button" href=${path("admin", "tenants", tenant, "invoices", month)} download=${`invoice-${month}.json`}>Invoice of ${month}</a>
    </div>
    <${Notice} error=${error} />
    ${!value && !error && html`<${Loading} />`}
    ${value && html`<${Days} rows=${value.daily} days=${Number(days)} />`}
    ${value && html`<${Table} caption=${`Usage by ${by}`} columns=${columns(by).filter(({ title }) => title !== "Rows" || value.rows.some((row) => row.rows > 0))} rows=${value.rows} id=${(row) => `${row[by]} ${row.currency}`} empty="No request in this period." />`}
    ${value?.more && html`<${Notice}>Only the first ${MOST_ROWS} rows are shown: the exports have all.<//>`}`;
}

const columns = (by) => [
  { title: by[0].toUpperCase() + by.slice(1), cell: (row) => row[by] || "–" },
  { title: "Amount", number: true, cell: (row) => (row.amount === undefined ? "–" : `${row.amount} ${row.currency}`) },
  { title: "Requests", number: true, cell: (row) => count(row.requests) },
  { title: "Failures", number: true, cell: (row) => count(row.failures) },
  { title: "Prompt tokens", number: true, cell: (row) => count(row.prompt_tokens) },
  { title: "Completion tokens", number: true, cell: (row) => count(row.completion_tokens) },
  { title: "Rows", number: true, cell: (row) => count(row.rows) },
];

function Days({ rows, days }) {
  const first = Date.parse(day(days - 1)) / 1000;
  const x = Array.from({ length: days }, (_, at) => first + at * DAY);
  const currencies = [...new Set(rows.map((row) => row.currency))].filter(Boolean).slice(0, 4);
  const values = (match, of) => {
    const sums = x.map(() => 0);
    for (const row of rows.filter(match)) {
      const at = Math.round((Date.parse(row.day) / 1000 - first) / DAY);
      if (at in sums) sums[at] += of(row);
    }
    return sums;
  };
  const series = currencies.length
    ? currencies.map((currency) => ({ label: currency, values: values((row) => row.currency === currency, (row) => Number(row.amount)) }))
    : [{ label: "requests", values: values(() => true, (row) => row.requests) }];
  const sums = series.map((each) => `${money(each.values.reduce((a, b) => a + b, 0))} ${each.label}`);
  return html`<p>${sums.join(", ")} in ${PERIODS[days]}</p>
    <${Chart} label=${`By day: ${sums.join(", ")} in ${PERIODS[days]}`} x=${x} series=${series} bars />`;
}
