"""The statements of the documentation hold."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from config.cases import load_cases
from config.loader import load
from gateway.features.explain.cases import run
from gateway.features.explain.why import Policy

PAGES = [
    Path("README.md"),
    Path("CONTRIBUTING.md"),
    Path("tests/FAILURES.md"),
    *sorted(Path("loadtests").glob("*.md")),
    *sorted(Path("docs").rglob("*.md")),
]


def blocks(language: str) -> list[tuple[Path, str]]:
    fence = re.compile(rf"```{language}\n(.*?)```", re.DOTALL)
    return [(page, text) for page in PAGES for text in fence.findall(page.read_text())]


@pytest.mark.parametrize(("page", "text"), blocks("yaml"))
def test_every_yaml_example_is_accepted(page: Path, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(name, "0123456789abcdef" * 2)
    path = tmp_path / "example.yaml"
    path.write_text(text)
    for name in re.findall(r"[\w-]+\.(?:pem|key)\b", text):
        (tmp_path / name).write_text("-----BEGIN EXAMPLE-----\n")
    for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        if (name := re.match(r"# (\w+\.py)\n", code)) is not None:
            (tmp_path / name[1]).write_text(code)
    assert load(path).version == yaml.safe_load(text)["version"]


def policies() -> list[tuple[str, str]]:
    """Each file of tests on a page, with the example that stands before it."""
    fence = re.compile(r"```yaml( tests)?\n(.*?)```", re.DOTALL)
    entries: list[tuple[str, str]] = []
    for page in PAGES:
        example = ""
        for is_tests, text in fence.findall(page.read_text()):
            if is_tests:
                entries.append((example, text))
            else:
                example = text
    return entries


def test_policies_behave_as_documented(tmp_path: Path) -> None:
    pairs = policies()
    assert len(pairs) > 4
    for number, (example, tests) in enumerate(pairs):
        path, beside = tmp_path / f"{number}.yaml", tmp_path / f"{number}.tests.yaml"
        path.write_text(example)
        beside.write_text(tests)
        assert [str(failure) for failure in run(Policy.of(load(path)), load_cases(beside))] == []


@pytest.mark.processes
def test_every_make_target_exists() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    targets = set(re.findall(r"\bmake ([a-z][a-z-]+)`", text) + re.findall(r"\$ make ([a-z-]+)", text))
    assert {"serve", "test"} <= targets
    for target in targets:
        planned = subprocess.run(["make", "--dry-run", target], capture_output=True, text=True)
        assert planned.returncode == 0, planned.stderr


def test_every_test_that_a_page_names_exists() -> None:
    named = {n for page in PAGES for n in re.findall(r"`(test_\w+)`", page.read_text())}
    written = "\n".join(path.read_text() for path in Path("tests").rglob("test_*.py"))
    assert named
    for name in named:
        assert f"def {name}(" in written, name


def test_every_module_that_a_text_names_exists() -> None:
    """Of pages and docstrings. A name that ends like a module may be that of a program, or of a reader's own file."""
    foreign = {"llama.cpp", "abacus.py", "serve_head.py", "api_router.py", "NAME.c", "headrace_model.py", "test_x.py"}
    rooms = [Path(room) for room in ("gateway", "adapters", "runtimes", "policies", "config", "loadtests", "tests")]
    sources = [path for room in rooms for path in room.rglob("*") if path.suffix in (".py", ".c", ".cpp", ".h", ".hpp")]
    names = {path.name for path in sources} | foreign
    texts = [*PAGES, *(path for path in sources if path.suffix == ".py")]
    named = [(text, n) for text in texts for n in re.findall(r"`(?:\w+/)*(\w+\.(?:py|c|cpp|h|hpp))`", text.read_text())]
    assert named
    assert [(str(text), name) for text, name in named if name not in names] == []


def test_every_metric_is_on_a_page_and_no_other() -> None:
    rooms = (Path("gateway"), Path("runtimes/tensor"))
    source = "\n".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    names = re.findall(r'"(headrace_[a-z_]+)"', source)
    made = {name.removesuffix("_total") for name in names} | {"headrace_spend_usd"}
    text = "\n".join(page.read_text() for page in PAGES)
    named = {name.removesuffix("_total") for name in re.findall(r"`(headrace_[a-z_]+)`", text)}
    assert named == made


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
        for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
            headings = re.findall(r"^#+ (.+)$", (page.parent / target if target else page).read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page}: {target}#{anchor}"


@pytest.mark.processes
def test_no_page_and_no_source_names_this_machine() -> None:
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    for name in listed:
        if Path(name).is_dir():  # a link, whose files are listed by themselves
            continue
        text = Path(name).read_text(errors="replace")
        assert "/" + "work/" not in text, name
        assert "/" + "root/" not in text, name
