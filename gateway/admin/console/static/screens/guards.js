// The guards of the file: who meets them, and what they have found since the start.
import { html, useEffect } from "../html.js";
import { get } from "../api.js";
import { Badge, Loading, Notice, count, seconds, useLoaded } from "../parts.js";
import { Table } from "../table.js";

const PERIOD = 5000;

export default function Guards() {
  const { value, error, again } = useLoaded((signal) => get("/admin/guards", {}, { signal }), []);
  useEffect(() => {
    const timer = setInterval(again, PERIOD);
    return () => clearInterval(timer);
  }, []);
  if (!value) return html`<${Notice} error=${error} />${!error && html`<${Loading} />`}`;
  return html`<${Notice} error=${error} />
    <p class="dim">Texts that each guard has found since the start of the gateway. No text is stored.</p>
    <${Table} caption="Guards" columns=${COLUMNS} rows=${value.guards} id=${(guard) => guard.name} empty="The file has no guard." />`;
}

const sum = (guard, accepts) => guard.verdicts.filter(accepts).reduce((total, each) => total + each.texts, 0);
const on = (side) => (each) => each.action !== "error" && each.on === side;
const failed = (guard) => sum(guard, (each) => each.action === "error");

const COLUMNS = [
  { title: "Guard", cell: (guard) => guard.name },
  { title: "Kind", cell: (guard) => guard.kind },
  { title: "Does", cell: (guard) => html`${guard.action}${guard.mode === "monitor" ? html` <${Badge} kind="warn">monitor<//>` : ""}` },
  { title: "Examines", cell: (guard) => guard.on.join(", ") },
  { title: "Met by", cell: (guard) => guard.applied.join(", ") || "nobody" },
  { title: "Exempt", cell: (guard) => guard.exempt.join(", ") },
  { title: "In prompts", number: true, cell: (guard) => count(sum(guard, on("prompt"))) },
  { title: "In answers", number: true, cell: (guard) => count(sum(guard, on("answer"))) },
  { title: "No verdict", number: true, cell: (guard) => html`<span class=${failed(guard) ? "bad" : ""}>${count(failed(guard))}</span>` },
  { title: "Then", cell: (guard) => guard.on_error ?? "" },
  { title: "Mean time", number: true, cell: (guard) => (guard.judged ? seconds(guard.mean_seconds) : "–") },
];
