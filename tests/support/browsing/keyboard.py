"""A page that a person uses with the keyboard alone."""

from tests.support.browsing.page import Page

MOST_STEPS = 400
_KINDS = "a, button, summary, input, select, textarea"
_NAMED = """const named = (e, kinds, name) => e.matches(kinds) && !e.disabled
  && (e.labels?.[0]?.textContent ?? e.getAttribute("aria-label") ?? e.textContent).trim().startsWith(name);"""
_EXISTS = (
    f"(kinds, name) => {{ {_NAMED} return [...document.querySelectorAll(kinds)].some((e) => named(e, kinds, name)) }}"
)
_FOCUS = f"""(kinds, name) => {{
  {_NAMED}
  const e = document.activeElement;
  if (!e || !named(e, kinds, name)) return "";
  const box = e.getBoundingClientRect();
  if (box.bottom < 0 || box.top > innerHeight || box.right < 0 || box.left > innerWidth) return "out of view";
  const style = getComputedStyle(e);
  return style.outlineStyle === "none" || parseFloat(style.outlineWidth) === 0 ? "without an outline" : "visible";
}}"""


class Keyboard:
    """Steps to elements with Tab, and uses them. The focus must be visible at each of them."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def reach(self, name: str, kinds: str = _KINDS) -> None:
        """Press Tab until the focus is at the element of a name."""
        await self.page.until(_EXISTS, kinds, name)
        seen = list[str]()
        for _ in range(MOST_STEPS):
            if focus := await self.page.evaluate(_FOCUS, kinds, name):
                if focus == "visible":
                    return
                seen.append(focus)  # a chart that is just drawn may have moved the page: another round is the proof
                assert len(seen) < 3, f"{name} is {seen}"
            await self.page.press("Tab")
        raise AssertionError(f"Tab does not reach {name!r}")

    async def use(self, name: str, kinds: str = _KINDS) -> None:
        """Press a button, or follow a link."""
        await self.reach(name, kinds)
        await self.page.press("Enter")

    async def write(self, name: str, text: str) -> None:
        """Write into a field."""
        await self.reach(name, "input, textarea")
        await self.page.send("Input.insertText", text=text)
