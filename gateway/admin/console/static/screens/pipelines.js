// The graphs of pipelines with live counts, and the path of one request.
import { html, useEffect } from "../html.js";
import { get, path } from "../api.js";
import { Field, Loading, Notice, To, count, seconds, useLoaded } from "../parts.js";
import { Table } from "../table.js";
import { recorded } from "./requests/record.js";

const PERIOD = 2000;
const WIDTH = 190, HEIGHT = 52, GAP_X = 60, GAP_Y = 18, LONGEST = 24;

export default function Pipelines({ parts: [model, id], go }) {
  const { value, error, again } = useLoaded((signal) => get("/admin/pipelines", {}, { signal }), []);
  useEffect(() => {
    const timer = setInterval(again, PERIOD);
    return () => clearInterval(timer);
  }, []);
  if (!value) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  const chosen = value.pipelines.find((each) => each.model === model) ?? value.pipelines[0];
  if (!chosen) return html`<p class="dim">No model of the file is a pipeline.</p>`;
  return html`<${Notice} error=${error} />
    <p class="row">${value.pipelines.map((each) => html`<${To} key=${each.model} to=${["pipelines", each.model]} class="button" aria-current=${each === chosen ? "true" : undefined}>${each.model}<//>`)}</p>
    <${Pipeline} key=${`${chosen.model} ${id ?? ""}`} pipeline=${chosen} id=${id} go=${go} />`;
}

function Pipeline({ pipeline, id, go }) {
  const passed = useLoaded((signal) => (id ? stepsOf(id, signal) : Promise.resolve(null)), [id]);
  const steps = (passed.value ?? []).filter((step) => step.pipeline === pipeline.model);
  const submit = (event) => {
    event.preventDefault();
    go("pipelines", pipeline.model, new FormData(event.target).get("id").trim());
  };
  const columns = [
    { title: "Step", cell: (node) => `${"· ".repeat(depth(pipeline, node))}${node.name || node.condition || node.kind}` },
    { title: "Kind", cell: (node) => `${node.kind}${node.each ? " for each row" : ""}` },
    { title: "Models", cell: (node) => node.models.join(", ") },
    { title: "Condition", cell: (node) => node.condition ?? "" },
    { title: "Runs", number: true, cell: (node) => count(node.counts.runs ?? 0) },
    { title: "Mean time", number: true, cell: (node) => (node.counts.runs ? seconds(node.counts.seconds / node.counts.runs) : "–") },
    { title: "Errors", number: true, cell: (node) => count(node.counts.errors ?? 0) },
    { title: "Blocked", number: true, cell: (node) => count(node.counts.blocks ?? 0) },
    { title: "Escalated", number: true, cell: (node) => count(node.counts.escalations ?? 0) },
  ];
  return html`<${Graph} pipeline=${pipeline} steps=${steps} />
    <${Table} caption=${`Steps of ${pipeline.model}`} columns=${columns} rows=${pipeline.nodes} id=${(node) => node.id} />
    <h2>Path of a request</h2>
    <form class="row" onSubmit=${submit}>
      <${Field} label="Id of a request" name="id" required maxlength="256" defaultValue=${id ?? ""} />
      <button>Show its path</button>
    </form>
    <${Notice} error=${passed.error} />
    ${passed.value && html`<${Path} steps=${passed.value} />`}`;
}

// The steps of a request: of its record, or, without a record, of the outcome of a recent request of the playground.
async function stepsOf(id, signal) {
  try {
    return (await recorded(id, undefined, signal)).steps ?? [];
  } catch (error) {
    if (error.status !== 404) throw error;
  }
  const outcome = await get(path("admin", "playground", "outcomes", id), {}, { signal });
  return outcome.steps.map((step) => ({ ...step, ms: step.seconds * 1000 }));
}

const Path = ({ steps }) => html`<${Table} caption="Path of the request" rows=${steps.map((step, at) => ({ ...step, at }))} id=${(step) => step.at}
  empty="The request passed no pipeline." columns=${[
    { title: "Step", cell: (step) => step.step },
    { title: "Pipeline", cell: (step) => step.pipeline },
    { title: "Outcome", cell: (step) => step.outcome },
    { title: "Why", cell: (step) => step.why ?? "" },
    { title: "Time", number: true, cell: (step) => seconds(step.ms / 1000) },
    { title: "Tokens", number: true, cell: (step) => (step.prompt_tokens === undefined ? "–" : count(step.prompt_tokens + step.completion_tokens)) },
    { title: "Endpoint", cell: (step) => step.endpoint ?? "–" },
    { title: "Cost", cell: (step) => step.cost ?? "–" },
    { title: "Error", cell: (step) => step.error || "–" },
  ]} />`;

const parentOf = (pipeline, node) => pipeline.nodes.find((each) => each.id === node.parent);

function depth(pipeline, node) {
  const parent = node.parent && parentOf(pipeline, node);
  return parent ? depth(pipeline, parent) + 1 : 0;
}

// A node stands right of the nodes that it waits for, and of the node around it.
function placed(pipeline) {
  const levels = new Map();
  const level = (node) => {
    if (!levels.has(node.id)) {
      const before = pipeline.nodes.filter((each) => node.needs.includes(each.id) || each.id === node.parent);
      levels.set(node.id, before.length ? Math.max(...before.map(level)) + 1 : 0);
    }
    return levels.get(node.id);
  };
  const rows = [];
  return new Map(pipeline.nodes.map((node) => {
    const column = level(node);
    rows[column] = (rows[column] ?? -1) + 1;
    return [node.id, { node, x: column * (WIDTH + GAP_X), y: rows[column] * (HEIGHT + GAP_Y) }];
  }));
}

const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

function Graph({ pipeline, steps }) {
  const places = placed(pipeline);
  const all = [...places.values()];
  const width = Math.max(...all.map((place) => place.x)) + WIDTH + 4;
  const height = Math.max(...all.map((place) => place.y)) + HEIGHT + 4;
  const passed = new Map(steps.map((step) => [step.step, step.outcome]));
  const edges = all.flatMap(({ node, x, y }) => [...node.needs, ...(node.needs.length || !node.parent ? [] : [node.parent])].map((id) => ({ from: places.get(id), x, y, id: `${id} ${node.id}`, inner: id === node.parent })).filter((edge) => edge.from));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Graph of ${pipeline.model}`}>
    <svg class="graph" role="img" aria-label=${`Graph of ${pipeline.model}; the table below has the same steps`} width=${width} height=${height} viewBox=${`-2 -2 ${width} ${height}`}>
      ${edges.map(({ from, x, y, id, inner }) => html`<path key=${id} class=${inner ? "edge inner" : "edge"}
        d=${`M${from.x + WIDTH} ${from.y + HEIGHT / 2} C${from.x + WIDTH + GAP_X / 2} ${from.y + HEIGHT / 2} ${x - GAP_X / 2} ${y + HEIGHT / 2} ${x} ${y + HEIGHT / 2}`} />`)}
      ${all.map(({ node, x, y }) => html`<g key=${node.id} class=${`node ${passed.has(node.id) ? `passed ${passed.get(node.id) === "ok" ? "" : "failed"}` : ""}`} transform=${`translate(${x} ${y})`}>
        <rect width=${WIDTH} height=${HEIGHT} rx="6" />
        <text x="10" y="21">${cut(node.name || node.condition || node.kind)}</text>
        <text class="small" x="10" y="40">${cut(`${node.models.join(", ") || node.kind}`)}</text>
        <text class="small number" x=${WIDTH - 8} y="21" text-anchor="end">${count(node.counts.runs ?? 0)}</text>
      </g>`)}
    </svg></div>`;
}
