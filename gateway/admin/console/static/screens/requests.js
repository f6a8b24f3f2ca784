// Requests: a search that pages by key, and the timeline of one request.
import { html, useState } from "../html.js";
import { get } from "../api.js";
import { Badge, Field, Loading, Notice, Time, To, count, money, seconds, useLoaded } from "../parts.js";
import { Pages } from "../table.js";
import { recorded } from "./requests/record.js";
import { Timeline } from "./requests/timeline.js";

const HOUR = 3600000;
const PERIODS = { 1: "the last hour", 24: "the last day", 168: "the last 7 days", "": "all stored" };
const FIELDS = ["id", "tenant", "model", "key", "pool", "status", "error", "trace"];
const LABELS = { id: "Id", tenant: "Tenant", model: "Model", key: "Key", pool: "Pool", status: "Status", error: "Error", trace: "Trace" };
const HINTS = { status: "Such as 429 or 5xx.", error: "Its kind; * is any error." };

export default function Requests({ session, parts, go }) {
  return parts[0] ? html`<${One} key=${parts.join("/")} id=${parts[0]} at=${parts[1]} />` : html`<${Search} session=${session} go=${go} />`;
}

function Search({ session }) {
  const [query, setQuery] = useState({ hours: "24" });
  const search = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const texts = Object.fromEntries([...form].map(([name, text]) => [name, text.trim()]).filter(([, text]) => text));
    setQuery({ ...texts, turn: Date.now() });
  };
  const { hours, turn, ...texts } = query;
  const from = hours ? new Date(Date.now() - Number(hours) * HOUR).toISOString() : undefined;
  const load = async (after, signal) => {
    const reply = await get("/admin/requests", { ...texts, from, after, totals: after ? undefined : "true" }, { signal });
    if (reply.totals) setTotals(reply.totals);
    return { rows: reply.requests, next: reply.next };
  };
  const [totals, setTotals] = useState(null);
  const shown = session.tenant ? FIELDS.filter((name) => name !== "tenant") : FIELDS;
  return html`<form class="row" onSubmit=${search} role="search">
      <${Field} label="Period" name="hours" defaultValue="24">
        ${Object.entries(PERIODS).map(([value, label]) => html`<option key=${value} value=${value} selected=${value === "24"}>${label}</option>`)}
      <//>
      ${shown.map((name) => html`<${Field} key=${name} label=${LABELS[name]} name=${name} hint=${HINTS[name]} maxlength="256" autocomplete="off" />`)}
      <button class="primary">Search</button>
    </form>
    ${totals && html`<${Totals} totals=${totals} />`}
    <${Pages} caption="Requests" load=${load} keys=${[JSON.stringify(query)]} columns=${columns(session)} id=${(row) => `${row.id} ${row.time}`}
      empty="No stored request matches." />`;
}

const Totals = ({ totals }) => html`<p aria-live="polite">
  ${totals.sums.length === 0 && "No request"}
  ${totals.sums
    .map((sum) => `${count(sum.requests)} requests${sum.cost === undefined ? " without a price" : `, ${money(Number(sum.cost))} ${sum.currency}`}`)
    .join("; ")}
  ${" "}<span class="dim">in the whole hours from <${Time} at=${totals.from} /> to <${Time} at=${totals.to} /></span>
</p>`;

const cost = (row) => (row.cost === undefined ? "–" : `${money(Number(row.cost))} ${row.currency}`);
const outcome = (row) => (row.status >= 500 ? "bad" : row.status >= 400 ? "warn" : "good");

const columns = (session) => [
  { title: "Time", cell: (row) => html`<${To} to=${["requests", row.id, row.time]}><${Time} at=${row.time} /><//>` },
  ...(session.tenant ? [] : [{ title: "Tenant", cell: (row) => row.tenant ?? "" }]),
  { title: "Model", cell: (row) => row.model ?? "" },
  { title: "Operation", cell: (row) => row.operation },
  { title: "Pool", cell: (row) => row.pool ?? "" },
  { title: "Status", cell: (row) => html`<${Badge} kind=${outcome(row)}>${row.status}<//> ${row.code ?? ""}` },
  { title: "Time taken", number: true, cell: (row) => seconds(row.duration_ms / 1000) },
  { title: "Tokens", number: true, cell: (row) => count((row.prompt_tokens ?? 0) + (row.completion_tokens ?? 0)) },
  { title: "Cost", number: true, cell: cost },
];

function One({ id, at }) {
  const { value, error, again } = useLoaded((signal) => recorded(id, at, signal), [id, at]);
  return html`<p><${To} to=${["requests"]}>Search<//></p>
    <${Notice} error=${error} />
    ${error && html`<button type="button" onClick=${again}>Try again</button>`}
    ${!value && !error && html`<${Loading} />`}
    ${value && html`<${Timeline} request=${value} cost=${cost(value)} kind=${outcome(value)} />`}`;
}
