// Models: those of the file, where they are served, and what the catalogue has about them.
import { html, useEffect, useState } from "../html.js";
import { get } from "../api.js";
import { Badge, Field, Loading, Notice, To, count, useLoaded } from "../parts.js";
import { Sorted } from "../table.js";
import { One } from "./models/one.js";
import { compact, perMillion, pools } from "./models/facts.js";

const MOST_ROWS = 500;
const MOST_POOLS = 3;
const ONLY = {
  warnings: ["with warnings", (model) => model.warnings?.length > 0],
  unpriced: ["without a price", (model) => !model.price],
  unpublished: ["not in the catalogue", (model) => model.published.length === 0],
};

export default function Models({ session, parts, query, goWith }) {
  const { tenant = "" } = query;
  const { value, error } = useLoaded((signal) => get("/admin/models", { tenant }, { signal }), [tenant]);
  if (!value) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  const shown = { session, query, value };
  return html`<${Notice} error=${error} />${parts[0] ? html`<${One} ...${shown} name=${parts[0]} />` : html`<${List} ...${shown} goWith=${goWith} />`}`;
}

function List({ session, query, value, goWith }) {
  const [text, setText] = useState(query.text ?? "");
  useEffect(() => setText(query.text ?? ""), [query.text]);
  const { tenant = "", only = "" } = query;
  const set = (name, chosen) => goWith(["models"], { tenant, text, only, [name]: chosen });
  const choice = (label, name, all, options) => html`<${Field} label=${label} name=${name} value=${query[name] ?? ""} onChange=${(event) => set(name, event.target.value)}>
    <option value="">${all}</option>
    ${options.map(([each, title]) => html`<option key=${each} value=${each} selected=${each === query[name]}>${title}</option>`)}
  <//>`;
  const wanted = text.trim().toLowerCase();
  const keeps = ONLY[only]?.[1] ?? (() => true);
  const matching = value.models.filter((model) => keeps(model) && texts(model).some((each) => each.toLowerCase().includes(wanted)));
  const offered = Object.entries(ONLY).filter(([name]) => !session.tenant || name !== "warnings");
  return html`<form class="row filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Field} label=${session.tenant ? "Model" : "Model, pool or provider"} name="text" type="search" value=${text} maxlength="256" autocomplete="off" spellcheck=${false}
        onInput=${(event) => setText(event.target.value)} onChange=${(event) => set("text", event.target.value)} />
      ${!session.tenant && choice("Allowed for", "tenant", "any tenant", value.tenants.map((name) => [name, name]))}
      ${choice("Show", "only", "all models", offered.map(([name, [title]]) => [name, title]))}
    </form>
    ${matching.length > MOST_ROWS && html`<${Notice}>${count(matching.length - MOST_ROWS)} more models match: type more of the name.<//>`}
    <${Sorted} caption="Models" first="Model" up=${true} columns=${columns(session, query)} rows=${matching.slice(0, MOST_ROWS)} id=${(model) => model.model}
      empty=${value.models.length ? "No model matches." : "The tenant may use no model of the file."} />
    <${Origin} catalogue=${value.catalogue} />`;
}

// The texts that the search reads.
const texts = (model) => [model.model, ...model.aliases, ...model.listed, ...pools(model), ...model.published.flatMap(({ provider, model: name }) => [provider, name].filter(Boolean))];

const first = (model) => model.published[0] ?? {};
const text = (value) => value ?? "";

const columns = (session, query) => [
  { title: "Model", by: (model) => model.model, cell: (model) => html`<${To} to=${["models", model.model]} query=${query}>${model.model}<//>${model.aliases.length > 0 && html` <small>${model.aliases.join(", ")}</small>`}` },
  ...(session.tenant ? [] : [{ title: "Warnings", number: true, by: (model) => model.warnings.length, cell: (model) => (model.warnings.length ? html`<${Badge} kind="warn">${model.warnings.length}<//>` : "–") }]),
  ...(session.tenant ? [] : [{ title: "Served by", by: (model) => served(model), cell: served }]),
  { title: "Context", number: true, by: (model) => first(model).context_window ?? 0, cell: (model) => compact(first(model).context_window) },
  { title: "Answer", number: true, by: (model) => first(model).max_output_tokens ?? 0, cell: (model) => compact(first(model).max_output_tokens) },
  { title: "Abilities", by: (model) => text(first(model).abilities?.join()), cell: (model) => html`<${Abilities} facts=${first(model)} />` },
  { title: "Price", by: (model) => perMillion(model.price).order, cell: (model) => perMillion(model.price).text },
  ...(session.tenant ? [] : [{ title: "Published", by: (model) => perMillion(first(model).price).order, cell: (model) => perMillion(first(model).price).text }]),
];

function served(model) {
  const names = model.steps.length ? ["pipeline"] : pools(model);
  const more = names.length - MOST_POOLS;
  return `${names.slice(0, MOST_POOLS).join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

const Abilities = ({ facts: { abilities, deprecated } }) => html`<span class="wide">${abilities?.join(", ") ?? "–"}</span>${deprecated && html` <${Badge} kind="warn">deprecated<//>`}`;

const Origin = ({ catalogue }) =>
  catalogue.error
    ? html`<${Notice} kind="bad">The catalogue of models cannot be read. ${catalogue.error}<//>`
    : html`<p class="dim">Context and the longest answer are in tokens. Prices are of a million tokens: prompt, answer, and prompt read from the cache. Published facts are those of the
        ${catalogue.shipped ? " shipped catalogue" : " catalogue of the file"} of <b>${catalogue.date}</b>. It has models of hosted providers only.</p>`;
