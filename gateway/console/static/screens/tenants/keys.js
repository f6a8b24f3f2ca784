// The keys of a tenant: issue, rotate, revoke. The plaintext of a new key is on the page once and nowhere else.
import { html, useState } from "../../html.js";
import { post, remove } from "../../api.js";
import { Badge, Code, Dialog, Field, Notice, Time } from "../../parts.js";
import { Table } from "../../table.js";

const STATES = { active: "good", expired: "warn", revoked: "bad", replaced: "warn" };
const MOST_ROWS = 1000;

export function Keys({ url, keys, session, again }) {
  const [dialog, setDialog] = useState(null);
  const close = () => {
    setDialog(null);
    again();
  };
  const newest = keys.slice().reverse().slice(0, MOST_ROWS);
  return html`<p><button type="button" class="primary" onClick=${() => setDialog({ kind: "issue" })}>Issue a key</button></p>
    ${keys.length > MOST_ROWS && html`<${Notice}>Only the newest ${MOST_ROWS} keys are shown: <code>headrace keys list</code> prints all.<//>`}
    <${Table} caption="Keys" columns=${columns(setDialog)} rows=${newest} id=${(key) => key.id} empty="No key." />
    ${dialog?.kind === "issue" && html`<${Issue} url=${url} session=${session} close=${close} />`}
    ${dialog?.kind === "rotate" && html`<${Rotate} url=${url} id=${dialog.id} close=${close} />`}
    ${dialog?.kind === "revoke" && html`<${Revoke} url=${url} id=${dialog.id} close=${close} />`}`;
}

const columns = (open) => [
  { title: "Id", cell: (key) => html`<code>${key.id}</code>` },
  { title: "Label", cell: (key) => key.label ?? "" },
  { title: "Status", cell: (key) => html`<${Badge} kind=${STATES[key.status]}>${key.status}<//>` },
  { title: "Role", cell: (key) => key.role ?? "user" },
  { title: "Restrictions", cell: (key) => notes(key) },
  { title: "Created", cell: (key) => html`<${Time} at=${key.created} />` },
  { title: "Expires", cell: (key) => html`<${Time} at=${key.expires} />` },
  { title: "Change", cell: (key) => html`<${Changes} stored=${key} open=${open} />` },
];

const notes = (key) =>
  [
    ...Object.entries(key.scopes ?? {}).map(([kind, names]) => `${kind}: ${names.join(" ")}`),
    ...Object.entries(key.labels ?? {}).map(([name, value]) => `${name}=${value}`),
  ].join(", ");

function Changes({ stored, open }) {
  if (stored.stored_in === "file") return html`<span class="dim">in the file</span>`;
  if (stored.status === "revoked" || stored.status === "expired") return "";
  const button = (kind, title, look) =>
    html`<button type="button" class=${look} aria-label=${`${title} ${stored.id}`} onClick=${() => open({ kind, id: stored.id })}>${title}</button>`;
  return html`${!stored.replaced_by && button("rotate", "Rotate", "small")} ${button("revoke", "Revoke", "small danger")}`;
}

// A dialog with a form. `send(form)` returns the reply; a reply with a key shows the key once.
function Form({ title, button, send, close, children, danger }) {
  const [error, setError] = useState(null);
  const [issued, setIssued] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      const reply = await send(new FormData(event.target));
      if (reply.key) setIssued(reply.key);
      else close();
    } catch (refused) {
      setError(refused);
    }
  };
  if (issued) {
    return html`<${Dialog} title="The new key" onClose=${close}>
      <p>Copy the key now: it is shown once and stored nowhere.</p>
      <${Code} text=${issued} label="key" />
      <p><button type="button" onClick=${close}>Done</button></p>
    <//>`;
  }
  return html`<${Dialog} title=${title} onClose=${close}>
    <form onSubmit=${submit}>
      ${children}
      <${Notice} error=${error} />
      <p class="row">
        <button class=${danger ? "danger" : "primary"}>${button}</button>
        <button type="button" onClick=${close}>Cancel</button>
      </p>
    </form>
  <//>`;
}

const only = (form, ...names) =>
  Object.fromEntries(names.map((name) => [name, form.get(name)?.trim()]).filter(([, value]) => value));

function Issue({ url, session, close }) {
  const send = (form) => {
    const models = form.get("models").split(/[\s,]+/).filter(Boolean);
    const scopes = models.length ? { scopes: { models } } : {};
    return post(`${url}/keys`, { ...only(form, "label", "expires", "role"), ...scopes });
  };
  const roles = session.role === "operator" ? ["user", "tenant-admin", "operator"] : ["user", "tenant-admin"];
  return html`<${Form} title="Issue a key" button="Issue" send=${send} close=${close}>
    <${Field} label="Label" name="label" maxlength="100" autocomplete="off" hint="Shown in lists, such as the name of the application." />
    <${Field} label="Expires" name="expires" autocomplete="off" hint="A day such as 2027-06-30, or a time from now such as 90d. Empty: never." />
    <${Field} label="Role" name="role">${roles.map((role) => html`<option key=${role}>${role}</option>`)}<//>
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

const Revoke = ({ url, id, close }) => html`<${Form}
  title=${`Revoke key ${id}`}
  button="Revoke"
  danger=${true}
  send=${() => remove(`${url}/keys/${encodeURIComponent(id)}`)}
  close=${close}
>
  <p>Requests with this key are refused from then on. This cannot be undone.</p>
<//>`;
