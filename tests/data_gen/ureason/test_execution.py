"""Snippets come to what real Python, compilers and a browser make of them; what is unknown is an error."""

import contextlib
import html as escaping
import json
import re
import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from uni_train.data_gen.objects import EVERYDAY
from uni_train.data_gen.ureason import code
from uni_train.data_gen.ureason.execution import ExecutionError, html, python, sql
from uni_train.data_gen.ureason.task import UReason


@pytest.fixture(scope="module")
def snippets():
    """language -> (snippet, the variable that is asked for, its program), of generated items of all levels."""
    found = {}
    for level in (1, 2, 3):
        for item in UReason(EVERYDAY, ("code",)).generate(8 * 7, level, "train", 0):
            found.setdefault(item.facts["language"], []).append(
                (item.facts["code"], item.facts["asks"], item.facts.get("program"))
            )
    return found


def test_programs_agree_with_python(snippets):
    for snippet, _, program in snippets["Python"]:
        real: dict = {}
        exec(snippet, {}, real)  # written by our own generator
        assert code.run(program) == python.run(snippet) == real


@pytest.mark.parametrize(
    "snippet",
    [
        "import os", "open('x')", "a = ().__class__", "a = 'x'.upper()", "f = lambda: 1", "def f(): pass",
        "a = 'x' * 10 ** 9", "a = 'x' * 1000000000", "a = '%99999d' % 1", "a = [0] * 1000000000",
        "a = 10\nwhile True:\n  a = 10", "for i in range(1000000000):\n  a = i",
        "a = 'xx'\nfor i in range(100):\n  a = a + a", "a = 7 << 3", "print(undefined)", "a = undefined",
        "a = [1][5]", "a = 99999 * 99999 * 99999", "a = 1\na[0] = 2", "a = (", "a = " + "(" * 500 + "1" + ")" * 500,
    ],
)  # fmt: skip
def test_python_reaches_nothing_and_stops(snippet):
    with pytest.raises(ExecutionError):
        python.run(snippet)


# language -> (a program around snippets, what prints a variable as JSON)
MAINS = {
    "JavaScript": ("%s", "console.log(JSON.stringify({}));"),
    "C++": (r"""#include <iostream>
#include <string>
#include <vector>
void show(int n) { std::cout << n << "\n"; }
void show(const std::string& s) { std::cout << '"' << s << "\"\n"; }
void show(const std::vector<std::string>& v) {
  for (size_t i = 0; i < v.size(); i++) std::cout << (i ? ", \"" : "[\"") << v[i] << '"'; std::cout << "]\n"; }
int main() {
%s
}
""", "show({});"),
    "Java": (r"""public class Main {
static void show(int n) { System.out.println(n); }
static void show(String s) { System.out.println('"' + s + '"'); }
static void show(String[] v) { System.out.println("[\"" + String.join("\", \"", v) + "\"]"); }
public static void main(String[] a) {
%s
}}
""", "show({});"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("language", "tool", "suffix"), [("JavaScript", "node", "js"), ("C++", "g++", "cpp"), ("Java", "java", "java")]
)
def test_programs_agree_with_the_real_thing(snippets, language, tool, suffix, tmp_path):
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool} here")
    source = tmp_path / f"Main.{suffix}"
    main, show = MAINS[language]
    blocks = ("{\n" + snippet + "\n" + show.replace("{}", asks) + "\n}" for snippet, asks, _ in snippets[language])
    source.write_text(main.replace("%s", "\n".join(blocks)))
    command = [tool, source]
    if language == "C++":
        subprocess.run(["g++", "-O0", "-o", tmp_path / "main", source], check=True)
        command = [tmp_path / "main"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [code.run(program)[asks] for _, asks, program in snippets[language]]
    assert [json.loads(line) for line in printed] == ours
    assert len(ours) >= 20


def test_sql_is_sqlite_without_its_reach(tmp_path):
    made = "CREATE TABLE t (a TEXT, n INTEGER);\nINSERT INTO t VALUES\n  ('x; y', 2),\n  ('z', 1);\n"
    assert sql.run(made + "UPDATE t SET n = 5 WHERE a = 'z';\nSELECT a FROM t ORDER BY n DESC;") == [("z",), ("x; y",)]
    assert len(sql.run(made + "select a FROM t WHERE n IN (SELECT max(n) FROM t);")) == 1
    for bad in (
        f"ATTACH '{tmp_path / 'x.db'}' AS y;\nSELECT 1;",
        "PRAGMA database_list;\nSELECT 1;",
        "SELECT a FROM t;",
        "CREATE TABLE t (a);",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT COUNT(*) FROM c;",
        "SELECT load_extension('x');",
        "",
    ):
        with pytest.raises(ExecutionError):
            sql.run(bad)
    assert not list(tmp_path.iterdir())


def test_html_hides_and_orders():
    page = """<style>.s { display: flex; flex-direction: row-reverse } div { color: red } .s .b { color: blue }
        #x { order: -1 }</style>
        <div class="s"><div>Mug</div><!-- <div>Fork</div> --><div class="b" id="x">Cup</div><div hidden>Pan</div>
        <div style="display: none">Pot</div></div>
        <table><tr><td>A</td><td>B</td></tr><tr><td hidden>X</td><td>C</td></tr></table>"""
    rows = html.render(page)
    assert [[cell.text for cell in row] for row in rows] == [["Mug", "Cup"], ["A", "B"], ["C"]]
    assert [cell.color for cell in rows[0]] == ["red", "blue"]


@pytest.mark.parametrize(
    "page",
    [
        "<script>1</script>", "<div>a", "<div>a</p>", "<style>div { float: left }</style><div>a</div>",
        "<style>div > p { color: red }</style><div>a</div>", "<style>p:hover { color: red }</style><div>a</div>",
        "<style>div { display: inline }</style><div>a</div>", "<div>a<p>b</p>c</div>",
    ],
)  # fmt: skip
def test_html_that_is_not_known_is_an_error(page):
    with pytest.raises(ExecutionError):
        html.render(page)


EXECUTE = {"Python": python.run, "SQL": sql.run, "HTML": html.render, "CSS": html.render}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_snippet_runs_or_is_an_error_of_execution(snippets, data):
    language = data.draw(st.sampled_from(tuple(EXECUTE)))
    snippet = data.draw(st.sampled_from(snippets[language]))[0]
    start = data.draw(st.integers(0, len(snippet)))
    end = data.draw(st.integers(start, min(len(snippet), start + 8)))
    put = data.draw(st.text(st.sampled_from("{}()[];=+-*/%\"'<>.,:!?&|\n 09azé\x00"), max_size=4))
    with contextlib.suppress(ExecutionError):
        EXECUTE[language](snippet[:start] + put + snippet[end:])


@pytest.mark.slow
def test_pages_agree_with_a_browser(snippets, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("there is no Chromium here")
    pages = [snippet for language in ("HTML", "CSS") for snippet, *_ in snippets[language][::2]]
    frames = "".join(f'<iframe srcdoc="{escaping.escape(page)}" width="800" height="600"></iframe>' for page in pages)
    script = """
      addEventListener('load', () => {
        const all = [...document.querySelectorAll('iframe')].map(frame => {
          const view = frame.contentWindow, found = [];
          for (const e of view.document.body.querySelectorAll('*')) {
            const box = e.getBoundingClientRect(), style = view.getComputedStyle(e);
            if (e.children.length || !e.textContent.trim() || !box.width || e.tagName == 'STYLE') continue;
            if (style.visibility == 'hidden') continue;
            found.push([Math.round(box.top), Math.round(box.left), e.textContent.trim(), style.color]);
          }
          return found.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
        });
        const names = {};
        for (const name of %s) {
          document.body.style.color = name;
          names[getComputedStyle(document.body).color] = name;
        }
        const named = all.map(page => page.map(cell => [...cell, names[cell[3]] || '']));
        document.body.textContent = 'FOUND' + JSON.stringify(named) + 'END';
      });"""
    colours = list(code._COLOURS)
    file = tmp_path / "all.html"
    file.write_text(f"<body>{frames}<script>{script % json.dumps(colours)}</script></body>")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--single-process", "--dump-dom")
    command = [browser, *options, f"--user-data-dir={tmp_path / 'profile'}", file.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True).stdout
    seen = json.loads(escaping.unescape(re.search("FOUND(.*?)END", dumped, re.DOTALL)[1]))
    assert len(seen) == len(pages)
    for page, found in zip(pages, seen, strict=True):
        rows: dict[int, list[tuple[str, str]]] = {}
        for top, _, text, _, colour in found:
            rows.setdefault(top, []).append((text, colour))
        ours = [[(cell.text, cell.color) for cell in row] for row in html.render(page)]
        assert ours == list(rows.values()), page
