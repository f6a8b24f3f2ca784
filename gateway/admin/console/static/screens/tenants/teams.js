// The teams of a tenant: their limits with the remaining amounts; create, change, remove.
import { html, useState } from "../../html.js";
import { put, remove } from "../../api.js";
import { Field, Notice } from "../../parts.js";
import { Table } from "../../table.js";
import { Form, only } from "./form.js";
import { amounts, tightest } from "./limits.js";

const UNITS = { spend: "50 usd/month", requests: "600/min", tokens: "200k/min", concurrency: "8" };

export function Teams({ url, teams, again }) {
  const [dialog, setDialog] = useState(null);
  const close = () => {
    setDialog(null);
    again();
  };
  return html`<p><button type="button" onClick=${() => setDialog({ kind: "set" })}>Add a team</button></p>
    <${Table} caption="Teams" columns=${columns(setDialog)} rows=${teams} id=${(team) => team.team} empty="No team." />
    ${dialog?.kind === "set" && html`<${Change} url=${url} team=${dialog.team} close=${close} />`}
    ${dialog?.kind === "remove" && html`<${Remove} url=${url} name=${dialog.team.team} close=${close} />`}`;
}

const columns = (open) => [
  { title: "Team", cell: (team) => team.team },
  { title: "Limits", cell: (team) => written(team.limits) },
  { title: "Tightest limit", cell: (team) => tightest(team.limits) },
  { title: "Change", cell: (team) => html`<${Changes} team=${team} open=${open} />` },
];

const written = (limits) =>
  limits
    .flatMap((limit) =>
      amounts(limit).map((amount) => `${amount.unit} ${amount.written}${limit.per === "team" ? "" : ` for each ${limit.per}`}`),
    )
    .join(", ") || "–";

function Changes({ team, open }) {
  if (team.stored_in === "file") return html`<span class="dim">in the file</span>`;
  const button = (kind, title, look) =>
    html`<button type="button" class=${look} aria-label=${`${title} ${team.team}`} onClick=${() => open({ kind, team })}>${title}</button>`;
  return html`${button("set", "Change", "small")} ${button("remove", "Remove", "small danger")}`;
}

// The form has one limit of the whole team. Limits of another form are changed by the command or the admin API.
const isPlain = (limits) =>
  limits.length <= 1 &&
  limits.every((limit) => limit.per === "team" && !limit.models && limit.enforce === "always" && limit.count === "host");

function Change({ url, team, close }) {
  const [limit = {}] = team?.limits ?? [];
  if (team && !isPlain(team.limits)) {
    return html`<${Form} title=${`Change team ${team.team}`} button="Close" send=${async () => ({})} close=${close}>
      <${Notice}>This team has several limits: change them with <code>headrace teams set</code>.<//>
    <//>`;
  }
  const send = (form) => {
    const limits = only(form, ...Object.keys(UNITS), ...others(limit));
    if (limits.concurrency) limits.concurrency = Number(limits.concurrency);
    return put(`${url}/teams/${encodeURIComponent(team?.team ?? form.get("name").trim())}`, { limits });
  };
  const title = team ? `Change team ${team.team}` : "Add a team";
  return html`<${Form} title=${title} button=${team ? "Change" : "Add"} send=${send} close=${close}>
    ${!team && html`<${Field} label="Name" name="name" required maxlength="128" autocomplete="off" />`}
    ${[...Object.keys(UNITS), ...others(limit)].map(
      (unit) => html`<${Field} key=${unit} label=${unit[0].toUpperCase() + unit.slice(1)} name=${unit} defaultValue=${limit[unit] ?? ""} autocomplete="off" hint=${UNITS[unit] && `Such as ${UNITS[unit]}. Empty: no limit but that of the tenant.`} />`,
    )}
  <//>`;
}

const others = (limit) => ["rows", "bytes", "device_ms"].filter((unit) => limit[unit] !== undefined);

const Remove = ({ url, name, close }) => html`<${Form}
  title=${`Remove team ${name}`}
  button="Remove"
  danger=${true}
  send=${() => remove(`${url}/teams/${encodeURIComponent(name)}`)}
  close=${close}
>
  <p>A team with valid keys is not removed. Its usage stays in reports and invoices.</p>
<//>`;
