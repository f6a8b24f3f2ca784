// One model: its warnings, its routes, and its price and abilities beside those of the catalogue.
import { html, useState } from "../../html.js";
import { get, path } from "../../api.js";
import { Action, Badge, Notice, To, count } from "../../parts.js";
import { Table } from "../../table.js";
import { RATES } from "./facts.js";

const MOST_TEXT = 4096;

// A tenant-admin has no provider in its facts.
const source = (facts) => (facts.provider ? `${facts.provider}: ${facts.model}` : facts.name);

export function One({ name, value, query, session }) {
  const model = value.models.find((each) => each.model === name || each.aliases.includes(name) || each.listed.includes(name));
  const back = html`<p><${To} to=${["models"]} query=${query}>All models<//></p>`;
  if (!model) return html`${back}<${Notice}>The file has no such model${query.tenant ? html` that ${query.tenant} may use` : ""}.<//>`;
  const facts = model.published;
  return html`${back}
    <h2>${model.model}</h2>
    ${(model.warnings ?? []).map((each) => html`<${Notice} key=${`${each.path} ${each.message}`} kind="warn"><code>${each.path}</code>, line ${each.line}: ${each.message}.<//>`)}
    <div class="row">
      <${To} class="button" to=${["requests"]} query=${{ model: model.model }}>Requests<//>
      <${To} class="button" to=${["usage", session.tenant ? "key" : "tenant", "30", `model=${model.model}`]}>Usage<//>
      ${!session.tenant && html`<${To} class="button" to=${["policy"]}>Change the file<//>`}
    </div>
    <div class="cards">
      <div class="card">
        <h3>In the file</h3>
        <${File} model=${model} />
      </div>
      ${facts.map((each) => html`<div class="card" key=${`${each.name} ${source(each)}`}>
        <h3>${source(each)} ${each.deprecated && html`<${Badge} kind="warn">deprecated${each.deprecated === "yes" ? "" : ` since ${each.deprecated}`}<//>`}</h3>
        <${Published} facts=${each} />
      </div>`)}
    </div>
    <${Card} key=${name} name=${model.model} tenant=${query.tenant} />
    <h3>Prices</h3>
    <${Prices} model=${model} date=${value.catalogue.date} />
    ${facts.length === 0 && html`<p class="dim">${value.catalogue.error ?? "The catalogue has models of hosted providers only, and no pool of this model sends to one of them."}</p>`}`;
}

const listed = (title, values) => values.length > 0 && html`<dt>${title}</dt><dd>${values.join(", ")}</dd>`;

const File = ({ model }) => html`<dl class="facts">
  ${listed("Aliases", model.aliases)} ${listed("Listed names", model.listed)} ${listed("Versions", model.versions)}
  ${model.steps?.length > 0 && html`<dt>Pipeline</dt><dd><${To} to=${["pipelines", model.model]}>with ${model.steps.join(", ")}<//></dd>`}
  ${(model.routes ?? []).map((route, at) => html`<${Route} key=${at} route=${route} number=${at + 1} />`)}
  ${!model.price && html`<dt>Price</dt><dd class="warn">none: its use costs nothing here</dd>`}
  ${!model.routes && model.aliases.length + model.listed.length + model.versions.length === 0 && model.price && html`<dt>Name</dt><dd>${model.model}</dd>`}
</dl>`;

const Route = ({ route, number }) => html`<dt>${route.kind === "pool" ? "Route" : route.kind[0].toUpperCase() + route.kind.slice(1)} ${route.name ?? number}</dt>
  <dd>
    ${route.arms.map((arm) => html`<div key=${arm.arm}>${arm.model ? html`model <${To} to=${["models", arm.model]}>${arm.model}<//>` : `pool ${arm.pools.join(", ")}`}${arm.arm !== (arm.model ?? arm.pools[0]) && html` <small>arm ${arm.arm}</small>`}</div>`)}
    ${route.fallback.length > 0 && html`<div class="dim">after a failure: ${route.fallback.join(", ")}</div>`}
  </dd>`;

const Published = ({ facts }) => html`<dl class="facts">
  <dt>Name here</dt><dd>${facts.name}</dd>
  <dt>Context</dt><dd>${facts.context_window ? `${count(facts.context_window)} tokens` : "not published"}</dd>
  <dt>Longest answer</dt><dd>${facts.max_output_tokens ? `${count(facts.max_output_tokens)} tokens` : "not published"}</dd>
  ${listed("Abilities", facts.abilities ?? [])} ${listed("Not able", facts.lacks ?? [])}
</dl>`;

// What the server of a model of tensors reports about it: its tensors, and its card. Each request for it reaches the server.
function Card({ name, tenant }) {
  const [card, setCard] = useState(null);
  const load = async () => setCard(await get(path("admin", "playground", "metadata", name), { tenant }));
  if (!card) return html`<p><${Action} run=${load}>Model card<//></p>`;
  const shapes = (tensors) => (Array.isArray(tensors) ? tensors : []).map((each) => `${each?.name}: ${each?.datatype} [${each?.shape ?? ""}]`).join("; ");
  const facts = [["platform", card.platform], ["versions", card.versions], ["inputs", shapes(card.inputs)], ["outputs", shapes(card.outputs)], ...Object.entries(card.parameters ?? {})];
  return html`<div class="card">
    <h3>Model card</h3>
    <dl class="facts">${facts.map(([title, value]) => value && html`<dt key=${title}>${title}</dt><dd>${String(value).slice(0, MOST_TEXT)}</dd>`)}</dl>
  </div>`;
}

// The rates of the file beside those of each provider.
function Prices({ model, date }) {
  const prices = [["This file", model.price], ...model.published.filter((each) => each.provider).map((each) => [`${source(each)}, ${date}`, each.price])];
  const rates = Object.keys(RATES).filter((rate) => prices.some(([, price]) => price?.[rate]));
  const rows = [
    ...rates.map((rate) => ({ title: RATES[rate], of: (price) => price?.[rate] ?? "–" })),
    ...(prices.some(([, price]) => price?.tiers?.length) ? [{ title: "above", of: (price) => (price?.tiers ?? []).map((tier) => `${count(tier.above)} tokens: ${tier.prompt}, ${tier.completion}`).join("; ") || "–" }] : []),
    ...(prices.some(([, price]) => price?.batch) ? [{ title: "a batch", of: (price) => price?.batch ?? "–" }] : []),
  ];
  const columns = [{ title: "Rate", cell: (row) => row.title }, ...prices.map(([title, price]) => ({ title, number: true, cell: (row) => row.of(price) }))];
  return html`<${Table} caption="Prices" columns=${columns} rows=${rows} id=${(row) => row.title} empty="Neither the file nor the catalogue has a price." />`;
}
