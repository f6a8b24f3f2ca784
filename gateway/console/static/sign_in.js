// The page of a browser without a session.
import { html, useState } from "./html.js";
import { post } from "./api.js";
import { Field, Notice } from "./parts.js";

export function SignIn() {
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target;
    setError(null);
    try {
      await post("/console/api/session", { key: new FormData(form).get("key") });
      location.reload();
    } catch (refused) {
      form.reset();
      setError(refused);
    }
  };
  return html`<main id="main" class="narrow">
    <h1>Sign in to Headrace</h1>
    ${!isSecureContext &&
    html`<${Notice} kind="bad">Browsers keep a session over https:// or at localhost only: open the console there.<//>`}
    <${Notice} error=${error} />
    <form onSubmit=${submit}>
      <${Field} label="Key of an operator or a tenant's admin" name="key" type="password" required autocomplete="off" maxlength="200"
        hint="It is sent once, and the browser does not store it." />
      <button class="primary">Sign in</button>
    </form>
  </main>`;
}
