// Models side by side: chats, embeddings and tensors, with the session's own limits and budgets.
import { html, useEffect, useId, useRef, useState } from "../html.js";
import { get, path } from "../api.js";
import { Badge, Code, Field, Loading, Notice, To, count, seconds, useLoaded } from "../parts.js";
import { send } from "../calls.js";
import { BadInput, dataUrl, tensorOfAudio, tensorOfImage, tensorsFromJson } from "../tensors.js";

const MOST = 4;
const KINDS = { chat: "Chat", embeddings: "Embeddings", infer: "Tensors" };
const EXAMPLE = '[{"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]';

export default function Playground({ session }) {
  const [tenant, setTenant] = useState(session.tenant ?? "");
  const [kind, setKind] = useState("chat");
  const tenants = useLoaded((signal) => get("/admin/tenants", {}, { signal }), []);
  const names = tenants.value?.tenants.map((each) => each.tenant ?? each.name) ?? [];
  const chosen = tenant || names[0] || "";
  if (!tenants.value) return html`<${Notice} error=${tenants.error} />${!tenants.error && html`<${Loading} />`}`;
  return html`<div class="row">
      <${Field} label="As the tenant" value=${chosen} onChange=${(event) => setTenant(event.target.value)} disabled=${session.role !== "operator"}>
        ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}<//>
      <${Field} label="Kind" value=${kind} onChange=${(event) => setKind(event.target.value)}>
        ${Object.entries(KINDS).map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}<//>
    </div>
    <p class="dim">Requests use the limits and the budget of the tenant.</p>
    ${chosen && html`<${Bench} key=${`${chosen} ${kind}`} tenant=${chosen} kind=${kind} />`}`;
}

function Bench({ tenant, kind }) {
  const { value, error } = useLoaded((signal) => get("/admin/playground/models", { tenant }, { signal }), [tenant]);
  const models = value?.data?.map((model) => model.id) ?? [];
  const [columns, setColumns] = useState([null]);
  const [answers, setAnswers] = useState({});
  const control = useRef(null);
  const [busy, setBusy] = useState(false);
  useEffect(() => () => control.current?.abort(), []);
  if (!value) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  const chosen = columns.map((model) => model ?? models[0] ?? "");
  const run = async (bodyOf) => {
    control.current?.abort();
    control.current = new AbortController();
    const { signal } = control.current;
    setAnswers({});
    setBusy(true);
    const show = (at) => (answer) => !signal.aborted && setAnswers((before) => ({ ...before, [at]: answer }));
    await Promise.all(chosen.map(async (model, at) => {
      try {
        await send(kind, model, await bodyOf(model), { tenant, signal, show: show(at) });
      } catch (failure) {
        if (failure.name !== "AbortError") setAnswers((before) => ({ ...before, [at]: { ...before[at], error: failure } }));
      }
    }));
    setBusy(false);
  };
  const Form = { chat: Chat, embeddings: Embeddings, infer: Tensors }[kind];
  return html`<${Form} run=${run} busy=${busy} stop=${() => { control.current?.abort(); setBusy(false); }} tenant=${tenant} />
    <div class="cards wide">${chosen.map((model, at) => html`<section key=${at} class="card" aria-label=${`Answer ${at + 1}`}>
      <${Field} label=${`Model ${at + 1}`} value=${model} onChange=${(event) => setColumns(columns.map((old, i) => (i === at ? event.target.value : old)))}>
        ${models.map((id) => html`<option key=${id} value=${id}>${id}</option>`)}<//>
      <${Answer} answer=${answers[at]} other=${answers[0]} at=${at} />
    </section>`)}</div>
    <p class="row">
      <button type="button" disabled=${columns.length >= MOST} onClick=${() => setColumns([...columns, models[columns.length % models.length] ?? null])}>Add a model</button>
      <button type="button" disabled=${columns.length < 2} onClick=${() => setColumns(columns.slice(0, -1))}>Remove the last model</button>
    </p>`;
}

const Send = ({ busy, stop }) => html`<div class="row"><button class="primary" disabled=${busy}>Send</button>
  <button type="button" disabled=${!busy} onClick=${stop}>Stop</button></div>`;

function Area({ label, hint, ...rest }) {
  const id = useId();
  return html`<div class="field"><label for=${id}>${label}</label><textarea id=${id} ...${rest}></textarea>${hint && html`<small>${hint}</small>`}</div>`;
}

// A form whose fields become a body; a mistake in them is shown and nothing is sent.
function useForm(run, bodyOf) {
  const [error, setError] = useState(null);
  const submit = (event) => {
    event.preventDefault();
    setError(null);
    const data = new FormData(event.target);
    run((model) => bodyOf(data, model)).catch(setError);
  };
  return { error, submit };
}

const json = (text, name) => {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new BadInput(`${name}: ${error.message}`);
  }
};

async function chatBody(data) {
  const image = data.get("image");
  const text = data.get("prompt");
  const content = image?.size ? [{ type: "text", text }, { type: "image_url", image_url: { url: await dataUrl(image) } }] : text;
  const system = data.get("system");
  const stream = data.get("stream") === "on";
  return {
    messages: [...(system ? [{ role: "system", content: system }] : []), { role: "user", content }],
    max_tokens: Number(data.get("max_tokens")),
    temperature: Number(data.get("temperature")),
    ...(stream ? { stream, stream_options: { include_usage: true } } : {}),
    ...(data.get("tools").trim() ? { tools: json(data.get("tools"), "Tools") } : {}),
  };
}

function Chat({ run, busy, stop }) {
  const { error, submit } = useForm(run, chatBody);
  return html`<form onSubmit=${submit}><${Notice} error=${error} />
    <${Area} label="Prompt" name="prompt" rows="4" required />
    <details><summary>More</summary>
      <${Area} label="System message" name="system" rows="2" />
      <${Area} label="Tools as JSON" name="tools" rows="4" hint="A list in the form of OpenAI's API." />
      <div class="row"><${Field} label="Image" name="image" type="file" accept="image/*" />
        <${Field} label="Most tokens" name="max_tokens" type="number" min="1" max="100000" value="256" />
        <${Field} label="Temperature" name="temperature" type="number" min="0" max="2" step="0.1" value="0.7" /></div>
      <p><label><input type="checkbox" name="stream" defaultChecked=${true} /> Stream the answer</label></p>
    </details>
    <${Send} busy=${busy} stop=${stop} /></form>`;
}

function Embeddings({ run, busy, stop }) {
  const { error, submit } = useForm(run, (data) => ({ input: data.get("input").split("\n").filter((line) => line.trim()) }));
  return html`<form onSubmit=${submit}><${Notice} error=${error} />
    <${Area} label="Texts, one on each line" name="input" rows="4" required />
    <${Send} busy=${busy} stop=${stop} /></form>`;
}

function Tensors({ run, busy, stop, tenant }) {
  const bodyOf = async (data, model) => {
    const file = data.get("file");
    if (!file?.size) return tensorsFromJson(data.get("tensors"));
    const metadata = await get(path("admin", "playground", "metadata", model), { tenant });
    const [declared] = metadata.inputs ?? [];
    if (!declared) throw new BadInput("The model declares no input.");
    return file.type.startsWith("audio/") ? tensorOfAudio(file, declared) : tensorOfImage(file, declared);
  };
  const { error, submit } = useForm(run, bodyOf);
  return html`<form onSubmit=${submit}><${Notice} error=${error} />
    <${Area} label="Tensors as JSON" name="tensors" rows="5" defaultValue=${EXAMPLE} hint="In the form of the Open Inference Protocol." />
    <${Field} label="Or an image or audio file" name="file" type="file" accept="image/*,audio/*" hint="For the first input that the model declares." />
    <${Send} busy=${busy} stop=${stop} /></form>`;
}

function Answer({ answer, other, at }) {
  if (!answer) return html`<p class="dim">No answer yet.</p>`;
  return html`<${Notice} error=${answer.error} />
    <div aria-live="polite" class="answer">${answer.text}</div>
    ${answer.tools?.filter(Boolean).map((call, index) => html`<${Code} key=${index} label=${`call of ${call.name}`} text=${`${call.name}(${call.arguments})`} />`)}
    ${answer.vectors?.map((vector, index) => html`<p key=${index}><code>[${vector.slice(0, 4).map((v) => v.toFixed(4)).join(", ")}, …]</code> ${vector.length} values
      ${index > 0 && html`, similar to the first by ${cosine(answer.vectors[0], vector).toFixed(3)}`}
      ${at > 0 && other?.vectors?.[index]?.length === vector.length && html`, to the first model's by ${cosine(other.vectors[index], vector).toFixed(3)}`}</p>`)}
    ${answer.tensors?.map((tensor) => html`<p key=${tensor.name}>${tensor.name}: ${tensor.datatype} [${tensor.shape.join(", ")}]<br /><code>${(tensor.data ?? []).slice(0, 32).join(", ")}${(tensor.data?.length ?? 0) > 32 ? ", …" : ""}</code></p>`)}
    <${Facts} answer=${answer} />`;
}

const cosine = (a, b) => {
  const dot = (x, y) => x.reduce((sum, value, at) => sum + value * y[at], 0);
  return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b) || 1);
};

function Facts({ answer: { outcome, explanation, firstMs, ms, id } }) {
  const facts = {
    "First byte": firstMs === undefined ? null : seconds(firstMs / 1000),
    Whole: ms === undefined ? null : seconds(ms / 1000),
    Cost: outcome?.cost,
    Tokens: outcome && outcome.prompt_tokens !== null ? `${count(outcome.prompt_tokens)} + ${count(outcome.completion_tokens)}` : null,
    Pool: outcome?.pool,
    Endpoint: outcome?.endpoint,
    Arm: outcome?.arm,
    Attempts: outcome?.attempts,
    Request: id && html`<${To} to=${["requests", id]}><code>${id}</code><//>`,
  };
  return html`<dl class="facts">${Object.entries(facts).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([title, value]) => html`<dt key=${title}>${title}</dt><dd>${value}</dd>`)}</dl>
    ${outcome?.error && html`<p><${Badge} kind="bad">${outcome.error}<//></p>`}
    ${explanation && html`<details><summary>Why it went there</summary><pre>${JSON.stringify(explanation, null, 1)}</pre></details>`}
    ${outcome?.steps?.length > 0 && html`<p><${To} to=${["pipelines", outcome.model, id]}>Path through the pipeline<//></p>`}`;
}
