// What all replicas do now, and did in the last hours: rates, times, money, errors by cause, pools and endpoints.
import { html, useState } from "../html.js";
import { Field, Loading, Notice, Time, count, money, seconds } from "../parts.js";
import { Table } from "../table.js";
import { Charts } from "./live/charts.js";
import { useLive } from "./live/stream.js";
import { Causes, Names, Pool, Replicas } from "./live/tables.js";

const DIMENSIONS = { "": "all requests", models: "models", tenants: "tenants", pools: "pools" };
const SPANS = { 300: "5 minutes", 3600: "1 hour", 21600: "6 hours" };

export default function Live() {
  const [replica, setReplica] = useState("");
  const [by, setBy] = useState("");
  const [span, setSpan] = useState("3600");
  const [paused, setPaused] = useState(false);
  const live = useLive(replica, by, Number(span), paused);
  const { frame, error } = live;
  if (!frame) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  const { rates, replicas } = frame;
  return html`<${Notice} error=${error} />
    ${error && html`<p class="dim">The figures are those of <${Time} at=${frame.at} />.</p>`}
    <${Figures} frame=${frame} reached=${!error} />
    <div class="row">
      ${(replicas.length > 1 || replica) &&
      html`<${Field} label="Replica" value=${replica} onChange=${(event) => setReplica(event.target.value)}>
        <option value="">all ${replicas.length}</option>
        ${replicas.map((each) => html`<option key=${each.replica} value=${each.replica}>${each.name}</option>`)}
      <//>`}
      <${Choice} label="By" options=${DIMENSIONS} value=${by} set=${setBy} />
      <${Choice} label="The last" options=${SPANS} value=${span} set=${setSpan} />
      <button type="button" aria-pressed=${paused} onClick=${() => setPaused(!paused)}>Pause</button>
    </div>
    <${Charts} live=${live} by=${by} span=${Number(span)} />
    ${by && html`<${Names} by=${by} rates=${rates} />`}
    ${rates.causes.length > 0 && html`<h2>Errors by cause</h2><${Causes} causes=${rates.causes} />`}
    ${replicas.length > 1 && html`<h2>Replicas</h2><${Replicas} replicas=${replicas} choose=${setReplica} />`}
    ${frame.pools.map((pool) => html`<${Pool} key=${pool.pool} pool=${pool} own=${frame.own} rate=${rates.pools.find((each) => each.name === pool.pool)} />`)}
    ${frame.workers.length > 0 && html`<h2>Workers</h2><${Table} caption="Workers" columns=${WORKERS} rows=${frame.workers} id=${(worker) => `${worker.slot} ${worker.pid}`} />`}`;
}

const Choice = ({ label, options, value, set }) => html`<${Field} label=${label} value=${value} onChange=${(event) => set(event.target.value)}>
  ${Object.entries(options).map(([key, title]) => html`<option key=${key} value=${key} selected=${key === value}>${title}</option>`)}
<//>`;

function Figures({ frame, reached }) {
  const { all } = frame.rates;
  const waiting = frame.pools.reduce((sum, pool) => sum + (pool.queue?.waiting ?? 0), 0);
  return html`<dl class="numbers">
    <${Figure} name="state" value=${!reached ? "not reached" : frame.accepting ? "serving" : "draining"} />
    <${Figure} name="requests under way" value=${count(frame.in_flight)} />
    <${Figure} name="requests waiting" value=${count(waiting)} />
    <${Figure} name="requests a second" value=${count(all.requests)} />
    <${Figure} name="failures a second" value=${count(all.failures)} kind=${all.failures > 0 ? "bad" : ""} />
    <${Figure} name="refused a second" value=${count(all.refused)} kind=${all.refused > 0 ? "warn" : ""} />
    <${Figure} name="time taken (p95)" value=${seconds(all.p95)} />
    <${Figure} name="first token (p95)" value=${seconds(all.first_p95)} />
    <${Figure} name="tokens a second" value=${count(all.tokens)} />
    ${all.rows > 0 && html`<${Figure} name="rows a second" value=${count(all.rows)} />`}
    ${Object.entries(all.money).map(([currency, amount]) => html`<${Figure} key=${currency} name=${`${currency} an hour`} value=${money(amount)} />`)}
  </dl>`;
}

const Figure = ({ name, value, kind = "" }) => html`<div><dt>${name}</dt><dd class=${kind}>${value}</dd></div>`;

const WORKERS = [
  { title: "Slot", cell: (worker) => worker.slot },
  { title: "Process", number: true, cell: (worker) => worker.pid ?? "–" },
  { title: "State", cell: (worker) => worker.state },
];
