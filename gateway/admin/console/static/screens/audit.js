// Administrative acts as sentences, newest first, with filters that live in the address.
import { html } from "../html.js";
import { get } from "../api.js";
import { Badge, Code, Field, Time } from "../parts.js";
import { Pages } from "../table.js";
import { sentence } from "./audit/sentences.js";

const PAGE = 100;
const OUTCOMES = { done: "good", refused: "warn", failed: "bad" };
const ABOUT = { "key.": "keys", "team.": "teams", "console.": "sign-ins", "config.": "the configuration", "rollout.": "rollouts", "experiment.": "experiments", "shadow.": "shadows", "batch.": "batches", "budget.": "budgets", "gateway.": "starts of the gateway" };
const NAMES = ["action", "outcome", "actor", "target"];

const columns = [
  { title: "Time", cell: (entry) => html`<${Time} at=${entry.at} />` },
  { title: "Act", cell: (entry) => html`${sentence(entry)} <${More} entry=${entry} />` },
  { title: "Outcome", cell: (entry) => html`<${Badge} kind=${OUTCOMES[entry.outcome]}>${entry.outcome}<//>` },
  { title: "From", cell: (entry) => html`${entry.peer || "–"} <small>${entry.role}</small>` },
  { title: "Number", number: true, cell: (entry) => entry.seq },
];

const More = ({ entry }) => html`<details>
  <summary>Details</summary>
  <${Code} label=${`entry ${entry.seq}`} text=${JSON.stringify({ actor: entry.actor, action: entry.action, target: entry.target, ...entry.detail }, null, 1)} />
</details>`;

export default function Audit({ query, goWith }) {
  const filters = Object.fromEntries(NAMES.filter((name) => query[name]).map((name) => [name, query[name]]));
  const load = async (before, signal) => {
    const { entries } = await get("/admin/audit", { ...filters, limit: PAGE, before }, { signal });
    const last = entries.at(-1)?.seq;
    return { rows: entries, next: entries.length === PAGE && last > 1 ? last : null };
  };
  const set = (name, value) => goWith(["audit"], { ...filters, [name]: value });
  const search = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    goWith(["audit"], { ...filters, actor: form.get("actor").trim(), target: form.get("target").trim() });
  };
  const choice = (label, name, all, options) => html`<${Field} label=${label} name=${name} value=${filters[name] ?? ""} onChange=${(event) => set(name, event.target.value)}>
    <option value="">${all}</option>
    ${options.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}
  <//>`;
  return html`<form class="row filters" role="search" onSubmit=${search}>
      ${choice("About", "action", "everything", Object.entries(ABOUT))}
      ${choice("Outcome", "outcome", "all outcomes", Object.keys(OUTCOMES).map((each) => [each, each]))}
      <${Field} label="Actor" name="actor" defaultValue=${filters.actor ?? ""} maxlength="256" autocomplete="off" />
      <${Field} label="Target" name="target" defaultValue=${filters.target ?? ""} maxlength="256" autocomplete="off" />
      <button class="primary">Search</button>
    </form>
    <${Pages} caption="Audit log" load=${load} keys=${[JSON.stringify(filters)]} columns=${columns} id=${(entry) => entry.seq}
      empty=${Object.keys(filters).length ? "No act matches." : "No act yet."} />
    <p class="dim">Each entry is chained to the one before it: <code>headrace audit verify</code> checks the chain.</p>`;
}
