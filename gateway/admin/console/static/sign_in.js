// The page of a browser without a session.
import { html, useState } from "./html.js";
import { post } from "./api.js";
import { Field, Notice } from "./parts.js";

export function SignIn({ oidc, over }) {
  const [error, setError] = useState(failure());
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
    <p class="brand"><img src="static/icon.svg" alt="" width="40" height="40" /> Headrace</p>
    <h1>Sign in to Headrace</h1>
    ${over && !error && html`<${Notice}>Your session is over. ${over} Sign in to go on where you were.<//>`}
    ${!isSecureContext &&
    html`<${Notice} kind="bad">Browsers keep a session over https:// or at localhost only: open the console there.<//>`}
    <${Notice} error=${error} />
    ${oidc && html`<p><a class="button primary" href="oidc/start" onClick=${remember}>Sign in with your organisation</a></p>`}
    <form onSubmit=${submit}>
      <${Field} label="Key of an operator or a tenant's admin" name="key" type="password" required autocomplete="off" maxlength="200"
        hint="It is sent once, and the browser does not store it." />
      <button class="primary">Sign in</button>
    </form>
    <details>
      <summary>How do I get a key?</summary>
      <p>On the machine of the gateway, an operator issues one:</p>
      <pre class="code" tabindex="0" aria-label="command">headrace keys create --tenant NAME --role operator --config FILE</pre>
      <p>With <code>--role tenant-admin</code> it is for the admin of that tenant.</p>
    </details>
  </main>`;
}

// The outcome of a sign-in at the provider: a reason from a fixed list, never a text of the address.
const FAILURES = {
  "#failed=provider": "The provider refused the sign-in, or does not respond. The gateway's log has the reason.",
  "#failed=expired": "The sign-in took too long, or another browser started it: try again.",
  "#failed=role": "Your account has no role in this gateway: ask an operator for a role.",
};

function failure() {
  const message = FAILURES[location.hash];
  return message ? { message } : null;
}

// The screen to open after the sign-in. A provider sends the browser to the first screen only.
const remember = () => sessionStorage.setItem("screen", location.hash);

export function recall() {
  const screen = sessionStorage.getItem("screen");
  sessionStorage.removeItem("screen");
  if (screen?.startsWith("#/") && !location.hash) location.hash = screen;
}
