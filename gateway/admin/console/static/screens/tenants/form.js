// A dialog with a form. `send(form)` returns the reply; a reply with a key shows the key once.
import { html, useState } from "../../html.js";
import { Code, Dialog, Notice } from "../../parts.js";

export function Form({ title, button, send, close, children, danger }) {
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

// The fields of a form that have a value.
export const only = (form, ...names) =>
  Object.fromEntries(names.map((name) => [name, form.get(name)?.trim()]).filter(([, value]) => value));
