// The shell: session, navigation, and the screen of the address after #.
import { html, render, useEffect, useRef, useState } from "./html.js";
import { get, remove, useToken } from "./api.js";
import { hash, Loading, Notice } from "./parts.js";
import { screensOf } from "./screens.js";
import { SignIn, recall } from "./sign_in.js";

const parse = () => {
  try {
    return location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  } catch {
    return [""];
  }
};
const go = (...parts) => {
  location.hash = hash(...parts);
};

function useParts() {
  const [parts, setParts] = useState(parse);
  useEffect(() => {
    const changed = () => setParts(parse());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parts;
}

function Screen({ screen, session, parts }) {
  const [part, setPart] = useState({});
  const heading = useRef();
  useEffect(() => {
    let current = true;
    screen.load().then(
      (module) => current && setPart({ path: screen.path, View: module.default }),
      (error) => current && setPart({ path: screen.path, error }),
    );
    document.title = `${screen.title} · Headrace`;
    heading.current?.focus();
    return () => {
      current = false;
    };
  }, [screen.path]);
  const ready = part.path === screen.path;
  return html`<main id="main">
    <h1 tabindex="-1" ref=${heading}>${screen.title}</h1>
    ${!ready && html`<${Loading} />`}
    ${ready && html`<${Notice} error=${part.error} />`}
    ${ready && part.View && html`<${part.View} session=${session} parts=${parts} go=${go} />`}
  </main>`;
}

function Shell({ session }) {
  const [first, ...parts] = useParts();
  const open = screensOf(session);
  const screen = open.find((each) => each.path === first) ?? open[0];
  const signOut = async () => {
    await remove("/console/api/session");
    location.reload();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header>
      <span class="brand"><img src="static/icon.svg" alt="" width="22" height="22" /> Headrace</span>
      <nav aria-label="Screens">
        ${open.map(
          (each) =>
            html`<a key=${each.path} href=${hash(each.path)} aria-current=${each === screen ? "page" : undefined}>${each.title}</a>`,
        )}
      </nav>
      <div class="session">
        <${Theme} />
        <span class="dim">${session.tenant ?? session.role}: ${session.name}</span>
        ${!session.local && html`<button type="button" onClick=${signOut}>Sign out</button>`}
      </div>
    </header>
    ${screen
      ? html`<${Screen} screen=${screen} session=${session} parts=${parts} />`
      : html`<main id="main"><h1 tabindex="-1">Headrace</h1><p>Your role sees no screen.</p></main>`}`;
}

function skip(event) {
  event.preventDefault();
  document.querySelector("#main h1")?.focus();
}

// Dark or light: the system's unless chosen here.
const THEMES = { "": "System", light: "Light", dark: "Dark" };

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") ?? "");
  const change = (event) => {
    localStorage.setItem("theme", event.target.value);
    setTheme(event.target.value);
  };
  document.documentElement.dataset.theme = theme;
  useEffect(() => dispatchEvent(new Event("theme")), [theme]);
  return html`<select aria-label="Colours" value=${theme} onChange=${change}>
    ${Object.entries(THEMES).map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
  </select>`;
}

function App() {
  const [state, setState] = useState({});
  useEffect(() => {
    get("/console/api/session").then(
      (session) => {
        useToken(session.token ?? "");
        if (session.signed_in) recall();
        setState({ session });
      },
      (error) => setState({ error }),
    );
  }, []);
  if (state.error) return html`<main><${Notice} error=${state.error} /></main>`;
  if (!state.session) return html`<main><${Loading} /></main>`;
  return state.session.signed_in ? html`<${Shell} session=${state.session} />` : html`<${SignIn} oidc=${state.session.oidc} />`;
}

render(html`<${App} />`, document.getElementById("app"));
