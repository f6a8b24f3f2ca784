// Requests: a search whose address can be shared, and the timeline of one request with its neighbours.
import { html, useEffect, useState } from "../html.js";
import { get } from "../api.js";
import { Action, Badge, Loading, Notice, Time, To, count, money, seconds, useLoaded } from "../parts.js";
import { Pages } from "../table.js";
import { save } from "./requests/export.js";
import { newer, older, recorded } from "./requests/record.js";
import { Filters, parametersOf, valid } from "./requests/search.js";
import { Timeline } from "./requests/timeline.js";

const FOLLOW_MS = 2000;

export default function Requests({ session, parts, query, goWith }) {
  const search = valid(query);
  return parts[0]
    ? html`<${One} key=${parts.join("/")} id=${parts[0]} at=${parts[1]} search=${search} goWith=${goWith} />`
    : html`<${Search} session=${session} search=${search} goWith=${goWith} />`;
}

function Search({ session, search, goWith }) {
  const [turn, setTurn] = useState(0);
  const [follow, setFollow] = useState(false);
  const [totals, setTotals] = useState(null);
  const [choices, setChoices] = useState({});
  const text = JSON.stringify(search);
  const load = async (after, signal) => {
    const more = after ? {} : { totals: "true", choices: "true" };
    const reply = await get("/admin/requests", { ...parametersOf(search), ...more, after }, { signal });
    if (reply.totals) setTotals(reply.totals);
    if (reply.choices) setChoices(reply.choices);
    return { rows: reply.requests, next: reply.next };
  };
  return html`<${Filters} session=${session} search=${search} choices=${choices} change=${(next) => goWith(["requests"], next)} />
    <div class="row">
      <button type="button" onClick=${() => setTurn(turn + 1)}>Refresh</button>
      <button type="button" aria-pressed=${follow} onClick=${() => setFollow(!follow)}>Follow</button>
      <${Action} run=${() => save("csv", parametersOf(search))}>Save as CSV<//>
      <${Action} run=${() => save("jsonl", parametersOf(search))}>Save as JSON lines<//>
    </div>
    ${totals && html`<${Totals} totals=${totals} />`}
    <${Pages} caption="Requests" load=${load} keys=${[text, turn]} period=${follow ? FOLLOW_MS : undefined} columns=${columns(session, search)}
      id=${(row) => `${row.id} ${row.time}`} empty=${Object.keys(search).length ? "No stored request matches this search." : "No request in the last day. The requests of clients appear here when they have ended."} />`;
}

const Totals = ({ totals }) => html`<p aria-live="polite">
  ${totals.sums.length === 0 && "No request"}
  ${totals.sums
    .map((sum) => `${count(sum.requests)} ${sum.requests === 1 ? "request" : "requests"}${sum.cost === undefined ? " without a price" : `, ${money(Number(sum.cost))} ${sum.currency}`}`)
    .join("; ")}
  ${" "}<span class="dim">in the whole hours from <${Time} at=${totals.from} /> until <${Until} at=${totals.to} /></span>
</p>`;

const NOW_MS = 10000;

const Until = ({ at }) => (Math.abs(Date.now() - new Date(at)) < NOW_MS ? "now" : html`<${Time} at=${at} />`);

const cost = (row) => (row.cost === undefined ? "–" : `${money(Number(row.cost))} ${row.currency}`);
const outcome = (row) => (row.status >= 500 ? "bad" : row.status >= 400 ? "warn" : "good");

const columns = (session, search) => [
  { title: "Time", cell: (row) => html`<${To} to=${["requests", row.id, row.time]} query=${search}><${Time} at=${row.time} /><//>` },
  ...(session.tenant ? [] : [{ title: "Tenant", cell: (row) => row.tenant ?? "" }]),
  { title: "Model", cell: (row) => row.model ?? "" },
  { title: "Operation", cell: (row) => row.operation },
  { title: "Pool", cell: (row) => row.pool ?? "" },
  { title: "Status", cell: (row) => html`<${Badge} kind=${outcome(row)}>${row.status}<//> ${row.cause ?? row.code ?? ""}` },
  { title: "Time taken", number: true, cell: (row) => seconds(row.duration_ms / 1000) },
  { title: "Tokens", number: true, cell: (row) => count((row.prompt_tokens ?? 0) + (row.completion_tokens ?? 0)) },
  { title: "Cost", number: true, cell: cost },
];

function One({ id, at, search, goWith }) {
  const { value, error, again } = useLoaded((signal) => recorded(id, at, signal), [id, at]);
  return html`<div class="row">
      <${To} class="button" to=${["requests"]} query=${search}>Search<//>
      ${value && html`<${Neighbours} of=${value} search=${search} goWith=${goWith} />`}
    </div>
    <${Notice} error=${error} />
    ${error && html`<button type="button" onClick=${again}>Try again</button>`}
    ${!value && !error && html`<${Loading} />`}
    ${value && html`<${Timeline} request=${value} cost=${cost(value)} kind=${outcome(value)} />`}`;
}

// The request before and the one after this one, among those of the search.
function Neighbours({ of, search, goWith }) {
  const [ends, setEnds] = useState({});
  useEffect(() => setEnds({}), [of.time]);
  const step = (name, find) => async () => {
    const row = await find(of.time, parametersOf(search));
    if (row) goWith(["requests", row.id, row.time], search);
    else setEnds({ ...ends, [name]: true });
  };
  return html`<${Action} run=${step("newer", newer)} disabled=${ends.newer}>${ends.newer ? "None is newer" : "Newer"}<//>
    <${Action} run=${step("older", older)} disabled=${ends.older}>${ends.older ? "None is older" : "Older"}<//>`;
}
