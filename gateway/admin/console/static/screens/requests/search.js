// The filters of the search. They are the parameters of the address, so that a search can be sent to a colleague.
import { html, useEffect, useState } from "../../html.js";
import { Field } from "../../parts.js";

const MINUTE = 60_000;
const WINDOWS = { "15m": ["the last 15 minutes", 15], "1h": ["the last hour", 60], "24h": ["the last day", 1440], "7d": ["the last 7 days", 10_080] };
const OUTCOMES = { error: "any failure", "2xx": "2xx, answered", "4xx": "4xx, refused", "5xx": "5xx, failed" };
const NAMES = ["window", "from", "to", "tenant", "model", "pool", "outcome", "user", "find"];
const DEFAULT = "24h";

// The filters of an address that this screen knows.
export const valid = (query) => Object.fromEntries(NAMES.filter((name) => query[name]).map((name) => [name, query[name]]));

// The parameters of the API for filters.
export function parametersOf({ window = DEFAULT, from, to, tenant, model, pool, outcome, user, find }) {
  const span = WINDOWS[window];
  const times = window === "all" ? {} : window === "times" ? { from: utc(from), to: utc(to) } : { from: new Date(Date.now() - (span ?? WINDOWS[DEFAULT])[1] * MINUTE).toISOString() };
  return { ...times, tenant, model, pool, user: user || undefined, ...ended(outcome), ...found(find) };
}

// A field of the page has the time of this machine, without a zone.
const utc = (text) => {
  const time = new Date(text ?? "");
  return Number.isNaN(time.getTime()) ? undefined : time.toISOString();
};

function ended(outcome) {
  if (!outcome) return {};
  if (outcome === "error") return { error: "*" };
  return /^[1-5](\d\d|xx)$/.test(outcome) ? { status: outcome } : { error: outcome };
}

// One field for three kinds of names, which differ in their form. `id:`, `key:` or `trace:` before the name decides.
function found(text) {
  if (!text) return {};
  const [, kind, rest] = /^(id|key|trace):(.*)$/s.exec(text) ?? [];
  if (kind) return { [kind]: rest.trim() };
  if (/^[0-9a-f]{32}$/.test(text)) return { trace: text };
  return /^[a-z2-7]{12}$/.test(text) ? { key: text } : { id: text };
}

// What is stored, and what the address names beside it.
const offered = (stored = [], chosen) => (chosen && !stored.includes(chosen) ? [chosen, ...stored] : stored);

const Choice = ({ label, name, value, all, options, set }) => html`<${Field} label=${label} name=${name} value=${value ?? ""} onChange=${(event) => set(name, event.target.value)}>
  <option value="">${all}</option>
  ${options.map(([each, title]) => html`<option key=${each} value=${each}>${title}</option>`)}
<//>`;

const plain = (values) => values.map((value) => [value, value]);

export function Filters({ session, search, choices, change }) {
  const [draft, setDraft] = useState(search);
  useEffect(() => setDraft(search), [JSON.stringify(search)]);
  const type = (event) => setDraft({ ...draft, [event.target.name]: event.target.value });
  const set = (name, value) => {
    const next = valid({ ...draft, [name]: value === DEFAULT && name === "window" ? "" : value });
    setDraft(next);
    if (name !== "window" || value !== "times") change(next);
  };
  const submit = (event) => {
    event.preventDefault();
    change(valid({ ...draft, user: draft.user?.trim(), find: draft.find?.trim() }));
  };
  const statuses = offered(choices.status, /^\d{3}$/.test(search.outcome ?? "") ? search.outcome : undefined);
  const kinds = offered(choices.error, search.outcome && !ended(search.outcome).status && search.outcome !== "error" ? search.outcome : undefined);
  const one = (label, name, all) => html`<${Choice} label=${label} name=${name} value=${draft[name]} all=${all} options=${plain(offered(choices[name], draft[name]))} set=${set} />`;
  return html`<form class="row filters" onSubmit=${submit} role="search">
    <${Field} label="Time" name="window" value=${draft.window ?? DEFAULT} onChange=${(event) => set("window", event.target.value)}>
      ${Object.entries(WINDOWS).map(([value, [title]]) => html`<option key=${value} value=${value}>${title}</option>`)}
      <option value="all">all stored</option>
      <option value="times">from … to …</option>
    <//>
    ${draft.window === "times" &&
    html`<${Field} label="From" name="from" type="datetime-local" value=${draft.from ?? ""} onInput=${type} />
      <${Field} label="To" name="to" type="datetime-local" value=${draft.to ?? ""} onInput=${type} />`}
    ${!session.tenant && one("Tenant", "tenant", "all tenants")}
    ${one("Model", "model", "all models")}
    ${one("Pool", "pool", "all pools")}
    <${Choice} label="Outcome" name="outcome" value=${draft.outcome} all="all outcomes" set=${set}
      options=${[...Object.entries(OUTCOMES), ...plain(statuses), ...kinds.map((kind) => [kind, `failure: ${kind}`])]} />
    <${Field} label="End user" name="user" value=${draft.user ?? ""} onInput=${type} maxlength="512" autocomplete="off" spellcheck=${false} />
    <${Field} label="Id, trace or key" name="find" value=${draft.find ?? ""} onInput=${type} maxlength="256" autocomplete="off" spellcheck=${false} />
    <button class="primary">Search</button>
    ${Object.keys(search).length > 0 && html`<button type="button" onClick=${() => change({})}>Clear</button>`}
  </form>`;
}
