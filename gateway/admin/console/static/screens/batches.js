// Batches: a list that pages by key, and one batch with its progress, its problems and its cancellation.
import { html, useEffect, useState } from "../html.js";
import { get, path, post } from "../api.js";
import { Action, Badge, Dialog, Field, Loading, Notice, Time, To, count, seconds, useLoaded } from "../parts.js";
import { Pages, Table } from "../table.js";

const PERIOD = 3000;
const STATES = ["unfinished", "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"];
const KINDS = { completed: "good", failed: "bad", expired: "bad", cancelled: "warn", cancelling: "warn" };
const ENDED = ["completed", "failed", "expired", "cancelled"];
const words = (state) => state.replaceAll("_", " ");

export default function Batches({ session, parts: [id] }) {
  return id ? html`<${One} key=${id} id=${id} />` : html`<${List} session=${session} />`;
}

function List({ session }) {
  const [query, setQuery] = useState({});
  const load = async (after, signal) => {
    const reply = await get("/admin/batches", { ...query, after }, { signal });
    return { rows: reply.batches, next: reply.next };
  };
  const search = (event) => {
    event.preventDefault();
    setQuery(Object.fromEntries([...new FormData(event.target)].map(([name, text]) => [name, text.trim()])));
  };
  return html`<form class="row" onSubmit=${search} role="search">
      <${Field} label="Status" name="status">
        <option value="">all</option>
        ${STATES.map((state) => html`<option key=${state} value=${state}>${words(state)}</option>`)}
      <//>
      ${!session.tenant && html`<${Field} label="Tenant" name="tenant" maxlength="128" autocomplete="off" />`}
      <button class="primary">Search</button>
    </form>
    <${Pages} caption="Batches" load=${load} keys=${[JSON.stringify(query)]} period=${PERIOD} columns=${columns(session)} id=${(row) => row.id}
      empty=${Object.values(query).some(Boolean) ? "No batch matches." : "No batch yet. Clients send files and batches to /v1/files and /v1/batches."} />`;
}

const ended = ({ lines }) => lines.succeeded + lines.failed;

const Progress = ({ batch }) => html`<progress max=${batch.lines.total || 1} value=${ended(batch)} aria-label=${`Progress of ${batch.id}`}></progress>
  ${" "}${count(ended(batch))} of ${count(batch.lines.total)}`;

const Status = ({ batch }) => html`<${Badge} kind=${KINDS[batch.status] ?? ""}>${words(batch.status)}<//>`;

const columns = (session) => [
  { title: "Created", cell: (row) => html`<${To} to=${["batches", row.id]}><${Time} at=${row.created_at} /><//>` },
  ...(session.tenant ? [] : [{ title: "Tenant", cell: (row) => row.tenant }]),
  { title: "Endpoint", cell: (row) => html`<code>${row.endpoint}</code>` },
  { title: "Status", cell: (row) => html`<${Status} batch=${row} />` },
  { title: "Lines", cell: (row) => html`<${Progress} batch=${row} />` },
  { title: "Failed", number: true, cell: (row) => count(row.lines.failed) },
  { title: "Tokens", number: true, cell: (row) => count(row.prompt_tokens + row.completion_tokens) },
];

function One({ id }) {
  const { value, error, again } = useLoaded((signal) => get(path("admin", "batches", id), {}, { signal }), [id]);
  const running = value && !ENDED.includes(value.status);
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(again, PERIOD);
    return () => clearInterval(timer);
  }, [running]);
  return html`<p><${To} to=${["batches"]}>All batches<//></p>
    <${Notice} error=${error} />
    ${error && html`<button type="button" onClick=${again}>Try again</button>`}
    ${!value && !error && html`<${Loading} />`}
    ${value && html`<${Batch} batch=${value} again=${again} />`}`;
}

function Batch({ batch, again }) {
  return html`<h2><code>${batch.id}</code> <${Status} batch=${batch} /></h2>
    <p class="lines"><${Progress} batch=${batch} /> lines, ${count(batch.lines.failed)} failed${batch.lines.unfinished ? `, ${count(batch.lines.unfinished)} not run` : ""}.
      ${" "}<span class="dim">${pace(batch)}</span></p>
    ${batch.may_cancel && html`<${Cancel} batch=${batch} again=${again} />`}
    <div class="cards">
      <div class="card"><h3>Batch</h3><${Facts} facts=${facts(batch)} /></div>
      <div class="card"><h3>Times</h3><${Facts} facts=${times(batch)} /></div>
      ${Object.keys(batch.metadata).length > 0 && html`<div class="card"><h3>Metadata</h3><${Facts} facts=${Object.entries(batch.metadata)} /></div>`}
    </div>
    ${batch.failures && html`<${Failures} batch=${batch} />`}
    ${batch.problems.length > 0 && html`<h3>Problems of the input</h3>
      <${Table} caption="Problems of the input" columns=${PROBLEMS} rows=${batch.problems.map((problem, at) => ({ ...problem, at }))} id=${(row) => row.at} />`}`;
}

// The rate since the first line began, and the time that the rest needs at this rate.
function pace(batch) {
  const begun = batch.times.in_progress;
  const lines = ended(batch);
  if (!begun || !lines || batch.status === "failed") return "";
  const until = batch.times.finalizing ?? batch.times.cancelling ?? batch.ended_at;
  const took = ((until ? new Date(until) : Date.now()) - new Date(begun)) / 1000;
  if (took <= 0) return "";
  const rate = `${count(lines / took)} lines a second`;
  return batch.status === "in_progress" ? `${rate}, about ${duration((batch.lines.total - lines) / (lines / took))} left` : rate;
}

const duration = (value) => (value < 120 ? seconds(Math.ceil(value)) : `${count(Math.ceil(value / 60))} minutes`);

const Facts = ({ facts }) => html`<dl class="facts">
  ${facts.filter(([, value]) => value !== undefined && value !== "").map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}
</dl>`;

const facts = (batch) => [
  ["Tenant", batch.tenant],
  ["Key", batch.key],
  ["API", batch.api],
  ["Endpoint", html`<code>${batch.endpoint}</code>`],
  ["Window", batch.window],
  ["Tokens", `${count(batch.prompt_tokens)} of prompts, ${count(batch.completion_tokens)} of answers`],
  ["Input", html`<code>${batch.input_file}</code>`],
  ["Output", batch.output_file && html`<code>${batch.output_file}</code>`],
  ["Errors", batch.error_file && html`<code>${batch.error_file}</code>`],
];

const times = (batch) => [
  ...Object.entries(batch.times)
    .sort(([, a], [, b]) => (a < b ? -1 : 1))
    .map(([state, at]) => [words(state), html`<${Time} at=${at} />`]),
  ["end of the window", html`<${Time} at=${batch.expires_at} />`],
];

function Failures({ batch }) {
  const all = batch.lines.failed + (batch.lines.unfinished ?? 0);
  return html`<h3>Failed lines</h3>
    <${Table} caption="Failed lines" columns=${FAILURES} rows=${batch.failures.map((failure, at) => ({ ...failure, at }))} id=${(row) => row.at} empty="The file with these lines has been deleted." />
    ${batch.failures.length < all && batch.failures.length > 0 && html`<p class="dim">The first ${count(batch.failures.length)} of ${count(all)}.</p>`}
    ${batch.error_file && html`<p><a class="button" href=${path("admin", "batches", batch.id, "failures")} download="failures.jsonl">Save all failed lines</a></p>`}`;
}

const FAILURES = [
  { title: "Line of the client", cell: (row) => html`<code>${row.custom_id || "–"}</code>` },
  { title: "Status", number: true, cell: (row) => row.status ?? "–" },
  { title: "Code", cell: (row) => html`<code>${row.code ?? ""}</code>` },
  { title: "Reason", cell: (row) => row.message ?? "" },
];

const PROBLEMS = [
  { title: "Line", number: true, cell: (row) => row.line ?? "–" },
  { title: "Code", cell: (row) => html`<code>${row.code}</code>` },
  { title: "Problem", cell: (row) => row.message },
  { title: "Field", cell: (row) => row.param ?? "" },
];

function Cancel({ batch, again }) {
  const [open, setOpen] = useState(false);
  const cancel = async () => {
    await post(`${path("admin", "batches", batch.id)}/cancel`);
    setOpen(false);
    again();
  };
  return html`<p><button type="button" class="danger" onClick=${() => setOpen(true)}>Cancel the batch</button></p>
    ${open && html`<${Dialog} title="Cancel this batch?" onClose=${() => setOpen(false)}>
      <p>No further line begins. Lines that run now end, and their results remain; the rest is reported as cancelled.</p>
      <div class="row"><${Action} class="danger" run=${cancel}>Confirm<//><button type="button" onClick=${() => setOpen(false)}>Go on</button></div>
    <//>`}`;
}
