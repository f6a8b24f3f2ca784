// Administrative acts, newest first.
import { html } from "../html.js";
import { get } from "../api.js";
import { Badge, Time } from "../parts.js";
import { Pages } from "../table.js";

const PAGE = 100;
const OUTCOMES = { done: "good", refused: "warn", failed: "bad" };

const columns = [
  { title: "Number", number: true, cell: (entry) => entry.seq },
  { title: "Time", cell: (entry) => html`<${Time} at=${entry.at} />` },
  { title: "Actor", cell: (entry) => html`${entry.actor} <small>${entry.role} ${entry.peer}</small>` },
  { title: "Action", cell: (entry) => entry.action },
  { title: "Target", cell: (entry) => entry.target },
  { title: "Outcome", cell: (entry) => html`<${Badge} kind=${OUTCOMES[entry.outcome]}>${entry.outcome}<//>` },
  { title: "Detail", cell: (entry) => html`<code>${detail(entry.detail)}</code>` },
];

const detail = (value) => (!value || Object.keys(value).length === 0 ? "" : JSON.stringify(value));

async function load(before, signal) {
  const { entries } = await get("/admin/audit", { limit: PAGE, before }, { signal });
  const last = entries.at(-1)?.seq;
  return { rows: entries, next: entries.length === PAGE && last > 1 ? last : null };
}

export default function Audit() {
  return html`<p class="dim">Each entry is chained to the one before it: <code>headrace audit verify</code> checks the chain.</p>
    <${Pages} caption="Audit log" load=${load} columns=${columns} id=${(entry) => entry.seq} />`;
}
