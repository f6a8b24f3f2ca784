// The tables of the live screen: by name, by cause, by replica, and the endpoints of each pool.
import { html, useState } from "../../html.js";
import { path, post } from "../../api.js";
import { Action, Badge, Dialog, Notice, count, money, seconds } from "../../parts.js";
import { Table } from "../../table.js";
import { named } from "./charts.js";

const KINDS = { healthy: "good", unhealthy: "bad", closed: "", open: "bad", half_open: "warn" };
const TITLES = { models: "Model", tenants: "Tenant", pools: "Pool" };

const an_hour = (rates) =>
  Object.entries(rates)
    .map(([currency, amount]) => `${money(amount)} ${currency}`)
    .join(", ") || "–";
const alarming = (rate) => (rate > 0 ? html`<span class="bad">${count(rate)}</span>` : "0");

const RATES = [
  { title: "Requests/s", number: true, cell: (row) => count(row.requests) },
  { title: "Failures/s", number: true, cell: (row) => alarming(row.failures) },
  { title: "Refused/s", number: true, cell: (row) => count(row.refused) },
  { title: "Time p50", number: true, cell: (row) => seconds(row.p50) },
  { title: "Time p95", number: true, cell: (row) => seconds(row.p95) },
  { title: "First token p95", number: true, cell: (row) => seconds(row.first_p95) },
  { title: "Tokens/s", number: true, cell: (row) => count(row.tokens) },
  { title: "Money an hour", number: true, cell: (row) => an_hour(row.money) },
];

export const Names = ({ by, rates }) => html`<${Table} caption=${`Rates by ${by}`} rows=${rates[by]} id=${(row) => row.name}
  columns=${[{ title: TITLES[by], cell: (row) => named(by, row.name) }, ...RATES]} empty="No request in the last seconds." />`;

export const Causes = ({ causes }) => html`<${Table} caption="Errors by cause" rows=${causes} id=${(row) => row.cause}
  columns=${[
    { title: "Status, code and reason", cell: (row) => html`<code>${row.cause}</code>` },
    { title: "Requests/s", number: true, cell: (row) => count(row.requests) },
  ]} />`;

export const Replicas = ({ replicas, choose }) => html`<${Table} caption="Replicas" rows=${replicas} id=${(row) => row.replica}
  columns=${[
    { title: "Replica", cell: (row) => html`<button type="button" class="small" onClick=${() => choose(row.replica)}>${row.name}</button>` },
    { title: "State", cell: (row) => html`<${Standing} replica=${row} />` },
    { title: "Under way", number: true, cell: (row) => count(row.in_flight) },
    ...RATES.slice(0, 5),
    { title: "Unhealthy endpoints", number: true, cell: (row) => alarming(row.unhealthy) },
  ]} />`;

const Standing = ({ replica }) =>
  replica.silent
    ? html`<${Badge} kind="bad">silent for ${seconds(Math.round(replica.silent))}<//>`
    : html`<${Badge} kind=${replica.accepting ? "good" : "warn"}>${replica.accepting ? "serving" : "draining"}<//>`;

export function Pool({ pool, rate, own }) {
  const { queue } = pool;
  const facts = [
    rate && `${count(rate.requests)} requests/s`,
    rate && rate.failures > 0 && `${count(rate.failures)} failures/s`,
    rate && `${count(rate.tokens)} tokens/s`,
    rate && rate.rows > 0 && `${count(rate.rows)} rows/s`,
    rate && rate.first_p50 !== null && `first token after ${seconds(rate.first_p50)} (p50)`,
    `${count(pool.in_flight)} under way`,
    queue && `${count(queue.waiting)} waiting`,
    queue?.served_per_second && `queue serves ${count(queue.served_per_second)}/s`,
  ].filter(Boolean);
  const { replicas } = pool;
  const omitted = pool.size - pool.endpoints.length;
  return html`<h2>${pool.pool}</h2>
    <p class="dim">${facts.join(" · ")}</p>
    ${replicas && html`<p class="dim">${count(replicas.ready)} of ${count(replicas.replicas)} replicas ready, ${count(replicas.desired)} needed: ${replicas.reason}</p>`}
    ${replicas?.failure && html`<p><${Badge} kind="bad">failing<//> ${replicas.failure}</p>`}
    <${Table} caption=${`Endpoints of ${pool.pool}`} columns=${columns_of(pool, own)} rows=${pool.endpoints} id=${(endpoint) => endpoint.endpoint} />
    ${omitted > 0 && html`<p class="dim">${count(omitted)} more endpoints.</p>`}`;
}

const columns = [
  { title: "Endpoint", cell: (endpoint) => html`${endpoint.address ?? endpoint.endpoint} <small>${endpoint.endpoint}</small>` },
  { title: "Health", cell: (endpoint) => html`<${Health} endpoint=${endpoint} />` },
  { title: "Breaker", cell: (endpoint) => html`<${Badge} kind=${KINDS[endpoint.breaker]}>${endpoint.breaker.replace("_", " ")}<//>` },
  { title: "Under way", number: true, cell: (endpoint) => count(endpoint.in_flight) },
  { title: "Weight", number: true, cell: (endpoint) => count(endpoint.weight) },
  { title: "Zone", cell: (endpoint) => endpoint.zone ?? "" },
];
const ACCOUNT = { title: "Quota left", cell: (endpoint) => html`<${Account} account=${endpoint.account} />` };
const columns_of = (pool, own) => [
  ...columns,
  ...(pool.endpoints.some((endpoint) => endpoint.account) ? [ACCOUNT] : []),
  ...(own ? [CHANGE] : []),
];

const Account = ({ account }) =>
  account &&
  html`${account.left === null ? "–" : `${Math.round(100 * account.left)} %`}
    ${account.resting.length > 0 && html` <${Badge} kind="warn">rests for ${seconds(Math.round(account.rest_seconds))}<//>
      <br /><small>${account.resting.join(", ")}</small>`}`;

const CHANGE = { title: "Change", cell: (endpoint) => html`<${Drain} endpoint=${endpoint} />` };

const Health = ({ endpoint }) => html`<${Badge} kind=${KINDS[endpoint.health] ?? ""}>${endpoint.health}<//>
  ${endpoint.drained ? html` <${Badge} kind="warn">drained<//>` : ""}
  ${endpoint.of ? html`<br /><small>so in ${endpoint.seen_by} of ${endpoint.of} replicas</small>` : ""}
  ${endpoint.probe_error ? html`<br /><small>${endpoint.probe_error}</small>` : ""}`;

// Drains, or asks first if the pool would be without an endpoint.
function Drain({ endpoint }) {
  const [last, setLast] = useState(false);
  const at = endpoint.endpoint.indexOf("/");
  const url = path("admin", "pools", endpoint.endpoint.slice(0, at), "endpoints", endpoint.endpoint.slice(at + 1));
  const [verb, title] = endpoint.drained ? ["undrain", "Undrain"] : ["drain", "Drain"];
  const change = () =>
    post(`${url}/${verb}`).catch((error) => {
      if (error.code !== "last_endpoint") throw error;
      setLast(true);
    });
  const insist = async () => {
    await post(`${url}/${verb}?force=true`);
    setLast(false);
  };
  return html`<${Action} class="small" aria-label=${`${title} ${endpoint.endpoint}`} run=${change}>${title}<//>
    ${last &&
    html`<${Dialog} title="Drain the last endpoint?" onClose=${() => setLast(false)}>
      <${Notice}>No other endpoint of the pool accepts requests. All requests to the pool would fail.<//>
      <p class="row">
        <button type="button" onClick=${() => setLast(false)}>Cancel</button>
        <${Action} class="danger" run=${insist}>Drain it<//>
      </p>
    <//>`}`;
}
