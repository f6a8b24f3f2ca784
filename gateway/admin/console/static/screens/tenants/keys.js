// The keys of a tenant: issue, rotate, block, revoke. The plaintext of a new key is on the page once and nowhere else.
import { html, useState } from "../../html.js";
import { get, post, put, remove } from "../../api.js";
import { Badge, Field, Notice, Time, To } from "../../parts.js";
import { Pages } from "../../table.js";
import { Form, only } from "./form.js";

const STATES = { active: "good", expired: "warn", revoked: "bad", replaced: "warn", blocked: "bad" };
const PAGE = 50;

export function Keys({ url, teams, session, again }) {
  const [dialog, setDialog] = useState(null);
  const [changes, setChanges] = useState(0);
  const close = () => {
    setDialog(null);
    setChanges(changes + 1);
    again();
  };
  const [text, setText] = useState("");
  const load = async (after, signal) => {
    const { keys, next } = await get(`${url}/keys`, { limit: PAGE, after, text }, { signal });
    return { rows: keys, next };
  };
  const search = (event) => {
    event.preventDefault();
    setText(new FormData(event.target).get("text").trim());
  };
  return html`<form class="row" role="search" onSubmit=${search}>
      <${Field} label="Id or label" name="text" maxlength="100" autocomplete="off" />
      <button>Search keys</button>
      <button type="button" class="primary" onClick=${() => setDialog({ kind: "issue" })}>Issue a key</button>
    </form>
    <${Pages} caption="Keys" load=${load} keys=${[url, changes, text]} columns=${columns(setDialog, teams)} id=${(key) => key.id} empty=${text ? "No key has this id or label." : "No key yet."} />
    ${dialog?.kind === "issue" && html`<${Issue} url=${url} teams=${teams} session=${session} close=${close} />`}
    ${dialog?.kind === "rotate" && html`<${Rotate} url=${url} id=${dialog.id} close=${close} />`}
    ${dialog?.kind === "move" && html`<${Move} url=${url} id=${dialog.id} teams=${teams} close=${close} />`}
    ${dialog?.kind === "block" && html`<${Block} url=${url} id=${dialog.id} close=${close} />`}
    ${dialog?.kind === "unblock" && html`<${Unblock} url=${url} id=${dialog.id} close=${close} />`}
    ${dialog?.kind === "revoke" && html`<${Revoke} url=${url} id=${dialog.id} close=${close} />`}`;
}

const columns = (open, teams) => [
  { title: "Id", cell: (key) => html`<code>${key.id}</code>` },
  { title: "Label", cell: (key) => key.label ?? "" },
  { title: "Status", cell: (key) => html`<${Badge} kind=${STATES[key.status]}>${key.status}<//>` },
  { title: "Role", cell: (key) => key.role ?? "user" },
  { title: "Team", cell: (key) => key.team ?? "" },
  { title: "Restrictions", cell: (key) => notes(key) },
  { title: "Created", cell: (key) => html`<${Time} at=${key.created} />` },
  { title: "Last use", cell: (key) => html`<${LastUse} stored=${key} />` },
  { title: "Expires", cell: (key) => html`<${Time} at=${key.expires} />` },
  { title: "Change", cell: (key) => html`<${Changes} stored=${key} open=${open} teams=${teams} />` },
];

// Usage is recorded by the hour; of older use the day is left.
const LastUse = ({ stored: { id, last_used: at } }) =>
  at
    ? html`<${To} to=${["requests"]} query=${{ window: "7d", find: `key:${id}` }}>${at.length > 10 ? html`<${Time} at=${at} seconds=${false} />` : at}<//>`
    : html`<span class="dim">–</span>`;

const notes = (key) =>
  [
    ...Object.entries(key.scopes ?? {}).map(([kind, names]) => `${kind}: ${names.join(" ")}`),
    ...Object.entries(key.labels ?? {}).map(([name, value]) => `${name}=${value}`),
  ].join(", ");

function Changes({ stored, open, teams }) {
  if (stored.stored_in === "file") return html`<span class="dim">in the file</span>`;
  if (stored.status === "revoked" || stored.status === "expired") return "";
  const button = (kind, title, look) =>
    html`<button type="button" class=${look} aria-label=${`${title} ${stored.id}`} onClick=${() => open({ kind, id: stored.id })}>${title}</button>`;
  return html`${!stored.replaced_by && stored.status !== "blocked" && button("rotate", "Rotate", "small")}
    ${teams.length > 0 && button("move", "Move", "small")}
    ${stored.status === "blocked" ? button("unblock", "Unblock", "small") : button("block", "Block", "small")}
    ${button("revoke", "Revoke", "small danger")}`;
}

const Team = ({ teams }) => html`<${Field} label="Team" name="team">
  <option value="">none</option>
  ${teams.map(({ team }) => html`<option key=${team} value=${team}>${team}</option>`)}
<//>`;

const Move = ({ url, id, teams, close }) => html`<${Form}
  title=${`Move key ${id}`}
  button="Move"
  send=${(form) => put(`${url}/keys/${encodeURIComponent(id)}/team`, { team: form.get("team") })}
  close=${close}
>
  <p>The limits of the team apply to the requests of the key from then on.</p>
  <${Team} teams=${teams} />
<//>`;

function Issue({ url, teams, session, close }) {
  const send = (form) => {
    const models = form.get("models").split(/[\s,]+/).filter(Boolean);
    const scopes = models.length ? { scopes: { models } } : {};
    return post(`${url}/keys`, { ...only(form, "label", "expires", "role", "team"), ...scopes });
  };
  const roles = session.role === "operator" ? ["user", "tenant-admin", "operator"] : ["user", "tenant-admin"];
  return html`<${Form} title="Issue a key" button="Issue" send=${send} close=${close}>
    <${Field} label="Label" name="label" maxlength="100" autocomplete="off" hint="Shown in lists, such as the name of the application." />
    <${Field} label="Expires" name="expires" autocomplete="off" hint="A day such as 2027-06-30, or a time from now such as 90d. Empty: never." />
    <${Field} label="Role" name="role">${roles.map((role) => html`<option key=${role}>${role}</option>`)}<//>
    ${teams.length > 0 && html`<${Team} teams=${teams} />`}
    <${Field} label="Models" name="models" autocomplete="off" hint="Names or globs, separated by spaces. Empty: all models of the tenant." />
  <//>`;
}

const Rotate = ({ url, id, close }) => html`<${Form}
  title=${`Rotate key ${id}`}
  button="Rotate"
  send=${(form) => post(`${url}/keys/${encodeURIComponent(id)}/rotate`, only(form, "overlap", "expires"))}
  close=${close}
>
  <p>A new key takes the place of this key. Both work until the overlap ends.</p>
  <${Field} label="Overlap" name="overlap" defaultValue="24h" autocomplete="off" />
<//>`;

const Block = ({ url, id, close }) => html`<${Form}
  title=${`Block key ${id}`}
  button="Block"
  danger=${true}
  send=${() => put(`${url}/keys/${encodeURIComponent(id)}/block`)}
  close=${close}
>
  <p>Requests with this key, and with keys that it replaced or that replaced it, are refused until it is unblocked.</p>
<//>`;

const Unblock = ({ url, id, close }) => html`<${Form}
  title=${`Unblock key ${id}`}
  button="Unblock"
  send=${() => remove(`${url}/keys/${encodeURIComponent(id)}/block`)}
  close=${close}
>
  <p>Requests with this key, and with keys that it replaced or that replaced it, are accepted again.</p>
<//>`;

const Revoke = ({ url, id, close }) => html`<${Form}
  title=${`Revoke key ${id}`}
  button="Revoke"
  danger=${true}
  send=${() => remove(`${url}/keys/${encodeURIComponent(id)}`)}
  close=${close}
>
  <p>Requests with this key are refused from then on. This cannot be undone.</p>
<//>`;
