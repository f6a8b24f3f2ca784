// Pools and their endpoints now: health, breaker, load, queue and rates.
import { html, useEffect, useRef, useState } from "../html.js";
import { events, path, post, raw } from "../api.js";
import { Action, Badge, Loading, Notice, count, seconds } from "../parts.js";
import { Chart } from "../chart.js";
import { Table } from "../table.js";

const HISTORY = 300;
const RETRY_MS = 3000;
const KINDS = { healthy: "good", unhealthy: "bad", closed: "", open: "bad", half_open: "warn" };

// The growth of a pool's sums a second; null after a restart, when a sum fell.
function rates(before, after) {
  const sums = (frame, name) => frame?.pools.find((pool) => pool.pool === name)?.served;
  const span = before ? after.at - before.at : 0;
  const of = {};
  for (const { pool, served } of after.pools) {
    const old = sums(before, pool) ?? (before ? {} : null);
    if (!served || !old || span <= 0) continue;
    const growth = (name) => served[name] - (old[name] ?? 0);
    if (growth("requests") < 0) continue;
    const rate = (name) => growth(name) / span;
    const answers = growth("answers");
    of[pool] = {
      requests: rate("requests"),
      failures: rate("failures"),
      tokens: rate("tokens"),
      rows: rate("rows"),
      firstChunk: answers > 0 ? growth("first_chunk_seconds") / answers : null,
    };
  }
  return of;
}

const sum = (of, name) => Object.values(of).reduce((total, rate) => total + rate[name], 0);

export default function Live() {
  const [shown, setShown] = useState(null);
  const [error, setError] = useState(null);
  const history = useRef([]);
  const [paused, setPaused] = useState(false);
  useEffect(() => {
    if (paused) return undefined;
    const control = new AbortController();
    follow(control.signal, setError, (frame) => {
      const past = history.current;
      // Rates over five seconds: single requests would make them jump.
      const of = rates(past.at(-Math.min(past.length, 5))?.frame, frame);
      history.current = [...past, { frame, of }].slice(-HISTORY);
      setShown({ frame, of });
    });
    return () => control.abort();
  }, [paused]);
  if (!shown) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  const { frame, of } = shown;
  const past = history.current;
  return html`<${Notice} error=${error} />
    <dl class="numbers">
      <${Figure} name="state" value=${error ? "not known" : frame.accepting ? "serving" : "draining"} />
      <${Figure} name="requests under way" value=${count(frame.in_flight)} />
      <${Figure} name="requests waiting" value=${count(frame.pools.reduce((all, pool) => all + (pool.queue?.waiting ?? 0), 0))} />
      <${Figure} name="requests a second" value=${count(sum(of, "requests"))} />
      <${Figure} name="failures a second" value=${count(sum(of, "failures"))} />
      <${Figure} name="tokens a second" value=${count(sum(of, "tokens"))} />
      <${Figure} name="rows a second" value=${count(sum(of, "rows"))} />
    </dl>
    <p><button type="button" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>Pause</button></p>
    ${past.length > 2 && html`<${Chart} label=${`Requests and failures a second of the last minutes; now ${count(sum(of, "requests"))} and ${count(sum(of, "failures"))}`}
      x=${past.map((each) => each.frame.at)}
      series=${["requests", "failures"].map((name) => ({ label: `${name}/s`, values: past.map((each) => sum(each.of, name)) }))} />`}
    ${frame.pools.map((pool) => html`<${Pool} key=${pool.pool} pool=${pool} rate=${of[pool.pool]} />`)}
    ${frame.workers.length > 0 && html`<h2>Workers</h2><${Table} caption="Workers" columns=${WORKERS} rows=${frame.workers} id=${(worker) => `${worker.slot} ${worker.pid}`} />`}`;
}

const WORKERS = [
  { title: "Slot", cell: (worker) => worker.slot },
  { title: "Process", number: true, cell: (worker) => worker.pid ?? "–" },
  { title: "State", cell: (worker) => worker.state },
];

const Figure = ({ name, value }) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`;

// Reads the stream until it is aborted; opens another when one ends.
async function follow(signal, setError, show) {
  while (!signal.aborted) {
    try {
      const response = await raw("GET", "/console/api/live", { signal });
      for await (const data of events(response)) {
        setError(null);
        show(JSON.parse(data));
      }
    } catch (error) {
      if (signal.aborted) return;
      setError(error);
      await new Promise((done) => setTimeout(done, RETRY_MS));
    }
  }
}

function Pool({ pool, rate }) {
  const { queue } = pool;
  const facts = [
    rate && `${count(rate.requests)} requests/s`,
    rate && rate.failures > 0 && `${count(rate.failures)} failures/s`,
    rate && `${count(rate.tokens)} tokens/s`,
    rate && rate.rows > 0 && `${count(rate.rows)} rows/s`,
    rate && rate.firstChunk !== null && `first chunk after ${seconds(rate.firstChunk)}`,
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
    <${Table} caption=${`Endpoints of ${pool.pool}`} columns=${columns} rows=${pool.endpoints} id=${(endpoint) => endpoint.endpoint} />
    ${omitted > 0 && html`<p class="dim">${count(omitted)} more endpoints.</p>`}`;
}

const columns = [
  { title: "Endpoint", cell: (endpoint) => html`${endpoint.address ?? endpoint.endpoint} <small>${endpoint.endpoint}</small>` },
  { title: "Health", cell: (endpoint) => html`<${Health} endpoint=${endpoint} />` },
  { title: "Breaker", cell: (endpoint) => html`<${Badge} kind=${KINDS[endpoint.breaker]}>${endpoint.breaker.replace("_", " ")}<//>` },
  { title: "Under way", number: true, cell: (endpoint) => count(endpoint.in_flight) },
  { title: "Weight", number: true, cell: (endpoint) => count(endpoint.weight) },
  { title: "Zone", cell: (endpoint) => endpoint.zone ?? "" },
  { title: "Change", cell: (endpoint) => html`<${Drain} endpoint=${endpoint} />` },
];

const Health = ({ endpoint }) => html`<${Badge} kind=${KINDS[endpoint.health] ?? ""}>${endpoint.health}<//>
  ${endpoint.drained ? html` <${Badge} kind="warn">drained<//>` : ""}
  ${endpoint.probe_error ? html`<br /><small>${endpoint.probe_error}</small>` : ""}`;

function Drain({ endpoint }) {
  const at = endpoint.endpoint.indexOf("/");
  const url = path("admin", "pools", endpoint.endpoint.slice(0, at), "endpoints", endpoint.endpoint.slice(at + 1));
  const [verb, title] = endpoint.drained ? ["undrain", "Undrain"] : ["drain", "Drain"];
  return html`<${Action} class="small" aria-label=${`${title} ${endpoint.endpoint}`} run=${() => post(`${url}/${verb}`)}>${title}<//>`;
}
