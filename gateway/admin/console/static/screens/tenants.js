// Tenants: limits with the remaining amounts, spend, teams, keys.
import { html, useEffect, useState } from "../html.js";
import { get, path } from "../api.js";
import { Field, Loading, Notice, To, bytes, count, money, useLoaded } from "../parts.js";
import { Table } from "../table.js";
import { Keys } from "./tenants/keys.js";
import { Limits, tightest } from "./tenants/limits.js";
import { Spend } from "./tenants/spend.js";
import { Teams } from "./tenants/teams.js";

const MOST_ROWS = 500;
const AGAIN_MS = 2000;

export default function Tenants({ session, parts }) {
  const name = session.tenant ?? parts[0];
  return name ? html`<${Tenant} name=${name} session=${session} key=${name} />` : html`<${List} />`;
}

const columns = [
  { title: "Tenant", cell: (tenant) => html`<${To} to=${["tenants", tenant.tenant]}>${tenant.tenant}<//>` },
  { title: "Requests under way", number: true, cell: (tenant) => count(tenant.in_flight) },
  { title: "Spent by live keys", number: true, cell: (tenant) => total(tenant.spent) },
  { title: "Tightest limit", cell: (tenant) => tightest(tenant.limits) },
  { title: "Models", cell: (tenant) => tenant.models.join(", ") },
];

function total(spent = []) {
  const sums = new Map();
  for (const { amount } of spent) {
    const [value, currency] = amount.split(" ");
    sums.set(currency, (sums.get(currency) ?? 0) + Number(value));
  }
  return [...sums].map(([currency, value]) => `${money(value)} ${currency}`).join(", ") || "–";
}

function List() {
  const [text, setText] = useState("");
  const { value, error } = useLoaded((signal) => get("/admin/tenants", {}, { signal }), []);
  if (!value) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  const matching = value.tenants.filter((tenant) => tenant.tenant.includes(text));
  return html`<div class="row">
      <${Field} label="Name contains" type="search" value=${text} onInput=${(event) => setText(event.target.value)} />
    </div>
    ${matching.length > MOST_ROWS && html`<${Notice}>${count(matching.length - MOST_ROWS)} more tenants match: type more of the name.<//>`}
    <${Table} caption="Tenants" columns=${columns} rows=${matching.slice(0, MOST_ROWS)} id=${(tenant) => tenant.tenant} />`;
}

function Tenant({ name, session }) {
  const url = path("admin", "tenants", name);
  const load = async (signal) => {
    const [tenant, { teams }] = await Promise.all([get(url, {}, { signal }), get(`${url}/teams`, {}, { signal })]);
    return { ...tenant, teams };
  };
  const { value, error, again } = useLoaded(load, [url]);
  useEffect(() => {
    if (!value || value.storage) return undefined; // a database that is busy is asked again
    const timer = setTimeout(again, AGAIN_MS);
    return () => clearTimeout(timer);
  }, [value]);
  if (!value) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  return html`${!session.tenant && html`<p><${To} to=${["tenants"]}>All tenants<//></p>`}
    <h2>${name}</h2>
    <dl class="facts">
      <dt>Models</dt>
      <dd>${value.models.join(", ")} <${To} to=${["models"]} query=${session.tenant ? {} : { tenant: name }}>Which are they?<//></dd>
      <dt>Requests under way</dt>
      <dd>${count(value.in_flight)}</dd>
      <dt>Stored</dt>
      <dd>${value.storage ? `${bytes(value.storage.used)} of ${bytes(value.storage.quota)}` : "cannot be read now"}</dd>
    </dl>
    <h3>Limits</h3>
    <${Limits} limits=${value.limits ?? []} />
    <h3>Spend and usage</h3>
    <${Spend} tenant=${name} />
    <h3>Teams</h3>
    <${Teams} url=${url} teams=${value.teams} again=${again} />
    <h3>Keys</h3>
    <${Keys} url=${url} teams=${value.teams} session=${session} again=${again} />`;
}
