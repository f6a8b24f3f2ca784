// One request: why it went where it went, and what happened when.
import { html, useState } from "../../html.js";
import { path, post } from "../../api.js";
import { Action, Badge, Code, Time, To, count, seconds } from "../../parts.js";
import { Table } from "../../table.js";

export function Timeline({ request, cost, kind }) {
  return html`<h2>${request.model ?? request.operation} <${Badge} kind=${kind}>${request.status}<//></h2>
    <div class="cards">
      <div class="card">
        <h3>Why</h3>
        <${Why} request=${request} />
      </div>
      <div class="card">
        <h3>Request</h3>
        <${Facts} facts=${facts(request, cost)} />
      </div>
    </div>
    <h3>Timeline</h3>
    <${Moments} request=${request} />
    ${request.steps && html`<h3>Steps of the pipeline</h3><${Table} caption="Steps" columns=${STEPS} rows=${request.steps.map((step, at) => ({ ...step, at }))} id=${(step) => step.at} />
      <p><${To} to=${["pipelines", request.model, request.id]}>Its path in the graph<//></p>`}
    ${request.content === "recorded" && html`<${Content} request=${request} />`}
    <details>
      <summary>Record</summary>
      <${Code} text=${JSON.stringify(request, null, 2)} label="record" />
    </details>`;
}

// What was recorded of the prompt and the answer, if the tenant has opted in. Each view is in the audit log.
function Content({ request }) {
  const [seen, setSeen] = useState(null);
  const read = async () => setSeen(await post(`${path("admin", "requests", request.id)}/content?at=${encodeURIComponent(request.time)}`));
  return html`<h3>Prompt and answer</h3>
    ${!seen && html`<p><${Action} run=${read}>Show the recorded content<//> <span class="dim">The audit log notes it.</span></p>`}
    ${seen?.redacted && html`<p class="dim">Parts are redacted.</p>`}
    ${seen && html`<${Code} text=${seen.prompt} label="prompt" />`}
    ${seen?.answer !== undefined && html`<${Code} text=${seen.answer} label="answer" />`}
    ${seen?.truncated && html`<p class="dim">The answer is incomplete.</p>`}`;
}

const Facts = ({ facts }) => html`<dl class="facts">
  ${facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}
</dl>`;

const verdict = ([guard, action, mode, on, texts]) =>
  `${guard}: ${action === "error" ? "no verdict" : action} in the ${on}${mode === "monitor" ? " (monitor)" : ""}${texts > 1 ? `, ${count(texts)} texts` : ""}`;
const tokens = (value, text) => (value ? `${count(value)} ${text}` : undefined);

const facts = (request, cost) => [
  ["Id", html`<code>${request.id}</code>`],
  ["Ended", html`<${Time} at=${request.time} full />`],
  ["Tenant", request.tenant],
  ["Key", request.key],
  ["End user", request.user && html`<${To} to=${["requests"]} query=${{ user: request.user }}>${request.user}<//>`],
  ["Client", request.client],
  ["Operation", `${request.operation}${request.stream ? ", streamed" : ""}`],
  ["Tokens", [tokens(request.prompt_tokens, "of the prompt"), tokens(request.completion_tokens, "of the answer")].filter(Boolean).join(", ")],
  ["Rows", request.rows && count(request.rows)],
  ["Device", request.device_ms && seconds(request.device_ms / 1000)],
  ["Cost", `${cost}${request.estimated ? " (tokens estimated)" : ""}`],
  ["Guards", request.guards?.map(verdict).join(", ")],
  ["Trace", request.trace_id && html`<code>${request.trace_id}</code>`],
];

function Why({ request }) {
  const { decision } = request;
  if (!decision) return html`<p>The request ended before a route was selected${request.code ? html`: <code>${request.code}</code>` : ""}.</p>`;
  if (decision.pipeline) return html`<p>The model is a pipeline: each step is below, with its reason.</p>`;
  const line = decision.line ? `, line ${decision.line} of the file` : "";
  return html`<${Facts}
    facts=${[
      ["Route", `${decision.name ?? `number ${decision.route + 1}`}${line}`],
      ["Matches", typeof decision.when === "string" ? decision.when : html`<code>${JSON.stringify(decision.when)}</code>`],
      ["Pools in order", decision.pools.join(", ")],
      ["Arm", decision.arm && `${decision.arm}, by ${decision.by}`],
      ["Priority", decision.priority],
      ["Rewritten", decision.rewrite && "by the route"],
      ["Served by", request.endpoint && `${request.pool}: ${request.endpoint}`],
      ["Limits in shadow", request.shadow_limits?.join(", ")],
      ["Ignored fields", request.ignored?.join(", ")],
      ["Error", request.error && `${request.error}: ${request.code}`],
    ]}
  />`;
}

const STEPS = [
  { title: "Step", cell: (step) => step.step },
  { title: "Pipeline", cell: (step) => step.pipeline },
  { title: "Outcome", cell: (step) => `${step.outcome}${step.error ? `: ${step.error}` : ""}` },
  { title: "Why", cell: (step) => step.why ?? "" },
  { title: "Time", number: true, cell: (step) => seconds(step.ms / 1000) },
  { title: "Tokens", number: true, cell: (step) => count((step.prompt_tokens ?? 0) + (step.completion_tokens ?? 0)) },
  { title: "Endpoint", cell: (step) => step.endpoint ?? "" },
  { title: "Cost", number: true, cell: (step) => step.cost ?? "–" },
];

// The moments of a request in milliseconds after its begin: [name, from, until].
function moments(request) {
  const end = request.duration_ms;
  const attempts = request.attempts ?? [];
  const first = request.first_chunk_ms;
  return [
    request.queue_ms ? ["Waits in a queue", (attempts[0]?.at_ms ?? request.queue_ms) - request.queue_ms, attempts[0]?.at_ms ?? request.queue_ms] : null,
    ...attempts.map(({ endpoint, at_ms: at }, number) => [
      `Attempt ${number + 1} at ${endpoint}`,
      at,
      attempts[number + 1]?.at_ms ?? first ?? end,
    ]),
    ...(request.steps ?? [])
      .filter((step) => step.at_ms !== undefined)
      .map((step) => [`Step ${step.step}`, step.at_ms, step.at_ms + step.ms]),
    first === undefined ? null : ["Answer", first, end],
    ["Whole request", 0, end],
  ].filter(Boolean);
}

function Moments({ request }) {
  const whole = Math.max(request.duration_ms, 0.001);
  const columns = [
    { title: "Part", cell: ([name]) => name },
    { title: "From", number: true, cell: ([, from]) => seconds(from / 1000) },
    { title: "Takes", number: true, cell: ([, from, until]) => seconds(Math.max(0, until - from) / 1000) },
    { title: "Time", cell: ([, from, until]) => html`<${Bar} from=${from / whole} until=${until / whole} />` },
  ];
  const events = (request.events ?? []).map(({ event, of }) => `${event} ${of}`);
  return html`<${Table} caption="Timeline" columns=${columns} rows=${moments(request)} id=${(row) => row.join(" ")} />
    ${events.length > 0 && html`<p>Events: ${events.join(", ")}</p>`}
    ${request.overhead_ms !== undefined && html`<p class="dim">The gateway's own part before the first chunk: ${seconds(request.overhead_ms / 1000)}.</p>`}`;
}

const within = (value) => Math.max(0, Math.min(1, value)) * 100;

function Bar({ from, until }) {
  const left = within(from);
  const width = Math.max(0.5, within(until) - left);
  return html`<div class="bar" aria-hidden="true"><div style=${{ marginLeft: `${left}%`, width: `${width}%` }}></div></div>`;
}
