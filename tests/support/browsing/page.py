"""A page as a person uses it: by the names of its buttons, links and fields. It collects the page's defects."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.browsing.devtools import DevTools, DevToolsError, connected

SECONDS = 300.0
WIDTH, HEIGHT = 1200, 800
_KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), " ": (32, " ")}

# The element of a name: its label, its text or its title. The most specific one counts; hidden ones do not.
_FIND = """(kinds, name, at) => {
  const label = (e) => (e.labels?.[0]?.textContent ?? e.getAttribute("aria-label") ?? e.textContent).trim();
  const open = document.querySelector("dialog[open]") ?? document;
  const all = [...open.querySelectorAll(kinds)].filter((e) => e.checkVisibility() && !e.disabled);
  return all.filter((e) => label(e) === name)[at] ?? all.filter((e) => label(e).startsWith(name))[at];
}"""


class Page:
    """One page in a context of its own: no other page shares its cookies."""

    def __init__(self, tools: DevTools, session: str) -> None:
        self._tools = tools
        self._session = session
        self.defects: list[str] = []
        """Errors on the console, exceptions and violations of the content security policy."""
        self.refused: list[str] = []
        """Responses with an error status, as the browser reports them."""
        tools.listeners[session] = self._on_event

    def _on_event(self, method: str, event: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.defects.append(json.dumps(event["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.defects.append(json.dumps(event["args"])[:2000])
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            entry = event["entry"]
            listed = self.refused if entry["source"] == "network" else self.defects
            listed.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif method == "Audits.issueAdded" and event["issue"]["code"] == "ContentSecurityPolicyIssue":
            self.defects.append(json.dumps(event["issue"]["details"])[:2000])
        elif method == "Page.javascriptDialogOpening":
            self.defects.append(f"dialog: {event['message']}")
            asyncio.get_running_loop().create_task(self.send("Page.handleJavaScriptDialog", accept=False))

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await self._tools.send(method, self._session, **parameters)

    async def evaluate(self, expression: str, *arguments: Any) -> Any:
        """The value of an expression, or of a function of JSON arguments."""
        if arguments:
            expression = f"({expression})({', '.join(json.dumps(argument) for argument in arguments)})"
        reply = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, json.dumps(reply["exceptionDetails"])[:3000]
        return reply["result"].get("value")

    async def until(self, expression: str, *arguments: Any) -> Any:
        """Wait until the value is true, also over loads of the page. Returns it."""
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    try:
                        if value := await self.evaluate(expression, *arguments):
                            return value
                    except DevToolsError:
                        pass  # the page is just being replaced
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.evaluate("document.body.innerText")
            raise AssertionError(f"not in time: {expression} {arguments}\n{shown}\n{self.defects}") from None

    async def goto(self, url: str) -> None:
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def shows(self, text: str) -> None:
        """Wait until the page shows a text."""
        await self.until("(text) => !!document.body?.innerText.includes(text)", text)

    async def text(self, selector: str = "main") -> str:
        return str(await self.evaluate("(s) => document.querySelector(s)?.innerText ?? ''", selector))

    async def click(self, name: str, kinds: str = "button, a, summary, input[type=checkbox]", at: int = 0) -> None:
        """Click with the mouse at the element of a name: an element that another one covers cannot be clicked.

        The page may move after the look, when what it loads arrives. A click that the element did not get is repeated.
        """
        while not await self._clicked(name, kinds, at):
            pass

    async def _clicked(self, name: str, kinds: str, at: int) -> bool:
        point = await self.until(
            f"""async (kinds, name, at) => {{
              const e = ({_FIND})(kinds, name, at);
              if (!e) return null;
              e.scrollIntoView({{block: "center"}});
              const box = () => e.getBoundingClientRect();
              const place = (b = box()) => [b.x + b.width / 2, b.y + b.height / 2];
              const before = place();
              await new Promise((done) => setTimeout(done, 100));
              const [x, y] = place(), top = document.elementFromPoint(x, y);
              if (x !== before[0] || y !== before[1]) return null;  // the page still moves
              if (!top || !(e.contains(top) || top.contains(e))) return null;
              window.wasClicked = false;
              e.addEventListener("click", () => {{ window.wasClicked = true; }}, {{capture: true, once: true}});
              return [x, y];
            }}""",
            kinds, name, at,
        )  # fmt: skip
        mouse = {"x": point[0], "y": point[1], "button": "left", "clickCount": 1}
        await self.send("Input.dispatchMouseEvent", type="mousePressed", **mouse)
        await self.send("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
        try:
            return await self.evaluate("window.wasClicked") is not False
        except DevToolsError:
            return True  # the click has replaced the page

    async def fill(self, label: str, text: str) -> None:
        """Replace the text of a field by typing."""
        focus = f"(kinds, name) => {{ const e = ({_FIND})(kinds, name, 0); e?.focus(); e?.select(); return !!e }}"
        await self.until(focus, "input, textarea", label)
        if text:
            await self.send("Input.insertText", text=text)
        else:
            await self.press("Backspace", 8)

    async def choose(self, label: str, option: str) -> None:
        """Choose an option of a list by its text."""
        await self.until(
            f"""(name, option) => {{
              const e = ({_FIND})("select", name, 0);
              const chosen = [...(e?.options ?? [])].find((o) => o.textContent.trim() === option);
              if (!chosen) return false;
              e.value = chosen.value;
              for (const kind of ["input", "change"]) e.dispatchEvent(new Event(kind, {{bubbles: true}}));
              return true;
            }}""",
            label, option,
        )  # fmt: skip

    async def press(self, key: str, code: int = 0) -> None:
        """Press and release a key."""
        number, text = _KEYS.get(key, (code, ""))
        event: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": number}
        await self.send("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        await self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def resize(self, width: int, height: int = HEIGHT) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def colours(self, scheme: str) -> None:
        """`dark` or `light`, as the system's preference."""
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self, *, full: bool = False) -> bytes:
        """A PNG of the visible part, or of the full page."""
        shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def page(address: str) -> AsyncIterator[Page]:
    """A new page of the browser at an address. It must have no defect at the end."""
    async with connected(address) as tools:
        context = (await tools.send("Target.createBrowserContext"))["browserContextId"]
        target = await tools.send("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await tools.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        made = Page(tools, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Audits", "Network"):
            await made.send(f"{domain}.enable")
        await made.resize(WIDTH)
        yield made
        await made.evaluate("1")  # later than the events before it
        assert made.defects == [], made.defects
        await tools.send("Target.disposeBrowserContext", browserContextId=context)
