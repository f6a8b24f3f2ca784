"""Text that would run in a page that does not escape it."""

import random

from tests.support.browsing.page import Page

HOSTILE = "<img src=x onerror=alert(1)>\"'><script>window.hit=1</script>&lt;${hit=1}"
_PARTS = """<script>window.hit=1</script>
<img src=x onerror=window.hit=1>
<svg/onload=window.hit=1>
javascript:hit=1
</pre>
</script>
<!--
]]>
"'`
${window.hit=1}
{{hit=1}}
&#60;script&#62;
<style>*{display:none}
<iframe srcdoc='<script>parent.hit=1</script>'>
<a href=javascript:hit=1>x</a>
%3Cscript%3E
<base href=//x>
<form action=//x>
<meta http-equiv=refresh content=0;url=//x>
onfocus=hit=1 autofocus
\\u003cscript\\u003e""".splitlines()
_MADE = "main script, iframe, base, meta[http-equiv], main img[src=x], [onerror], [onload]"


def hostile_texts(count: int, seed: int = 16) -> list[str]:
    """Generated texts of several parts each."""
    rng = random.Random(seed)
    return ["".join(rng.choices(_PARTS, k=rng.randint(1, 5))) for _ in range(count)]


async def check_inert(page: Page) -> None:
    """No text of the page has become an element or has run."""
    assert await page.evaluate("window.hit") is None
    assert await page.evaluate("(made) => document.querySelectorAll(made).length", _MADE) == 0
    assert await page.evaluate("[...document.querySelectorAll('a')].every((a) => a.protocol.startsWith('http'))")
