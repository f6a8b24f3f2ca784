// The first screen: a key, a request in three languages, and a chat that answers, with its route and cost.
import { html, useRef, useState } from "../html.js";
import { events, get, path, post, raw } from "../api.js";
import { Action, Code, Field, Loading, Notice, To, count, seconds, useLoaded } from "../parts.js";
import { snippets } from "./start/snippets.js";

export default function Start({ session }) {
  const [tenant, setTenant] = useState(session.tenant ?? undefined);
  const { value, error } = useLoaded((signal) => get("/console/api/quickstart", { tenant }, { signal }), [tenant]);
  if (!value) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  return html`<${Notice} error=${error} /><${Steps} key=${value.tenant} start=${value} setTenant=${setTenant} />`;
}

// The address of clients' requests. A listener on all addresses is reached by the name of this page.
function base({ scheme, host, port }) {
  const any = ["0.0.0.0", "::", ""].includes(host);
  const name = any ? location.hostname : host.includes(":") ? `[${host}]` : host;
  return `${scheme}://${name}:${port}`;
}

function Steps({ start, setTenant }) {
  const [issued, setIssued] = useState(null);
  const [model, setModel] = useState(start.models[0] ?? "");
  const [language, setLanguage] = useState("curl");
  const key = issued ?? start.key;
  const { tenant } = start;
  const issue = async () => {
    const reply = await post(`${path("admin", "tenants", tenant)}/keys`, { label: "quickstart", expires: "1d" });
    setIssued(reply.key);
  };
  return html`<section class="card">
      <h2>1. A key</h2>
      ${start.tenants.length > 1 &&
      html`<${Field} label="Tenant" value=${tenant} onChange=${(event) => setTenant(event.target.value)}>
        ${start.tenants.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      <//>`}
      ${key && html`<${Code} text=${key} label="key" />`}
      ${key && html`<p class="dim">${issued ? "Valid for a day, and shown once." : "The demo key: on this machine only, until the gateway stops."}</p>`}
      ${!key && html`<${Action} class="primary" run=${issue}>Issue a key for a day<//>`}
    </section>
    <section class="card">
      <h2>2. A request</h2>
      ${start.models.length === 0 && html`<${Notice}>No model of this tenant answers chats. The playground sends tensors.<//>`}
      ${start.models.length > 1 &&
      html`<${Field} label="Model" value=${model} onChange=${(event) => setModel(event.target.value)}>
        ${start.models.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      <//>`}
      ${model && html`<${Languages} chosen=${language} choose=${setLanguage} />
      <${Code} text=${snippets[language].write(base(start), key ?? "YOUR_KEY", model)} label=${snippets[language].title} />`}
    </section>
    ${model && html`<section class="card"><h2>3. An answer</h2><${Chat} tenant=${tenant} model=${model} /></section>`}`;
}

const Languages = ({ chosen, choose }) => html`<p class="row" role="group" aria-label="Language">
  ${Object.entries(snippets).map(
    ([name, { title }]) =>
      html`<button key=${name} type="button" class=${name === chosen ? "primary" : ""} aria-pressed=${name === chosen} onClick=${() => choose(name)}>${title}</button>`,
  )}
</p>`;

function Chat({ tenant, model }) {
  const [text, setText] = useState("");
  const [outcome, setOutcome] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const control = useRef(null);
  const send = async (event) => {
    event.preventDefault();
    const content = new FormData(event.target).get("prompt");
    control.current = new AbortController();
    setBusy(true);
    setText("");
    setOutcome(null);
    setError(null);
    let id;
    try {
      await untilStarted(model, control.current.signal, () => setText("The model is still starting …"));
      setText("");
      id = await stream({ tenant, model, content, signal: control.current.signal, show: setText });
    } catch (failure) {
      if (failure.name !== "AbortError") setError(failure);
    }
    if (id) setOutcome(await result(id));
    setBusy(false);
  };
  return html`<form onSubmit=${send}>
      <${Field} label="Prompt" name="prompt" defaultValue="What is a river?" required autocomplete="off" maxlength="4000" />
      <p class="row">
        <button class="primary" disabled=${busy}>Send</button>
        ${busy && html`<button type="button" onClick=${() => control.current.abort()}>Stop</button>`}
      </p>
    </form>
    <${Notice} error=${error} />
    <div class="answer" aria-live="polite" aria-busy=${busy}>${text}</div>
    ${outcome && html`<${Outcome} outcome=${outcome} />`}`;
}

// Waits until a model has an endpoint: a bundled one loads for some seconds after the start of the gateway.
async function untilStarted(model, signal, waits) {
  for (;;) {
    const { models_without_endpoint: missing } = await get("/readyz", { models: "ignored" }, { signal });
    if (!missing?.includes(model)) return;
    waits();
    await new Promise((done) => setTimeout(done, 500));
  }
}

// Sends a chat as the session; `show` receives the text so far. Returns the id of the request.
async function stream({ tenant, model, content, signal, show }) {
  const body = { model, stream: true, max_tokens: 200, messages: [{ role: "user", content }] };
  const response = await raw("POST", "/admin/playground/chat", { query: { tenant }, body, signal });
  let text = "";
  for await (const data of events(response)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    text += chunk.choices?.[0]?.delta?.content ?? "";
    show(text);
  }
  return response.headers.get("x-request-id");
}

async function result(id) {
  for (const wait of [50, 200, 500, 1000]) {
    await new Promise((done) => setTimeout(done, wait)); // the record follows the last chunk
    const outcome = await get(path("admin", "playground", "outcomes", id)).catch(() => null);
    if (outcome) return outcome;
  }
  return null;
}

const Outcome = ({ outcome }) => html`<dl class="facts">
  <dt>Request</dt>
  <dd><${To} to=${["requests", outcome.id]}>Why it went there<//> <code>${outcome.id}</code></dd>
  <dt>Served by</dt>
  <dd>pool ${outcome.pool}, endpoint ${outcome.endpoint}, ${count(outcome.attempts)} attempt${outcome.attempts === 1 ? "" : "s"}</dd>
  <dt>Time</dt>
  <dd>${seconds(outcome.seconds)}, first chunk after ${seconds(outcome.first_chunk_seconds)}</dd>
  <dt>Tokens</dt>
  <dd>${count(outcome.prompt_tokens)} of the prompt, ${count(outcome.completion_tokens)} of the answer</dd>
  <dt>Cost</dt>
  <dd>${outcome.cost ?? "the model has no price"}</dd>
</dl>`;
