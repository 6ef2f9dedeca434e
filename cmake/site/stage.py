# stage.py - collects the pages of the manuals' site: stage.py SOURCE TARGET
#
# Sphinx reads its pages from one folder. This program copies all manuals there, below the paths
# that they have in the source tree, and changes three things: a README becomes the page `index` of
# its folder, a link to a source file leads to a page that shows this file, and the marks for the
# tests of code blocks are removed. It also makes a page of each manual page for man(1).
import os
import pathlib
import re
import shutil
import subprocess
import sys

FOLDERS = ("bindings", "core", "examples", "policies", "tests")
REFERENCES = (pathlib.PurePath("core/include/loam.h"),)
LANGUAGES = {".c": "c", ".h": "c", ".cc": "cpp", ".hpp": "cpp", ".lua": "lua", ".py": "python",
             ".rs": "rust", ".json": "json", ".yml": "yaml", ".yaml": "yaml"}
LINK = re.compile(r"(!?)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
MARK = re.compile(r"^<!-- test: .* -->$", re.MULTILINE)
PART = re.compile(r"^/\* ---- (.+?)(?: -+)?(?:\n \*\n \*|( \*/\n)|(?=\n))", re.MULTILINE)
SECTION = re.compile(r'<h1 class="Sh" id="[^"]*"><a[^>]*>([^<]*)</a></h1>')


def code(language, text):
    """Returns a block of code; the language may also be a directive of Sphinx."""
    fence = "`" * 8
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


class Stage:
    """The folder that is filled, and the source files that need a page."""

    def __init__(self, source, target):
        self.source, self.target = source, target
        self.shown = set(REFERENCES)

    def write(self, path, text):
        file = self.target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def follow(self, page, match):
        """Returns the form of a link on the site, and notes the file to which it leads."""
        _, path, anchor = match.groups()
        anchor = anchor or ""
        linked = pathlib.PurePath(os.path.normpath(page.parent / path))
        file = self.source / linked
        if linked.name == "README.md":
            return f"]({path[:-len('README.md')]}index.md{anchor})"
        if linked.suffix == ".md" or not file.is_file():
            return match.group(0)
        if linked.suffix == ".svg":
            self.copy(linked)
            return match.group(0)
        self.shown.add(linked)
        return f"]({path}.md{anchor})"

    def copy(self, path):
        (self.target / path.parent).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.source / path, self.target / path)

    def add_manual(self, page):
        text = MARK.sub("", (self.source / page).read_text(encoding="utf-8"))
        text = LINK.sub(lambda match: self.follow(page, match), text)
        self.write(page.with_name("index.md") if page.name == "README.md" else page, text)

    def add_shown(self, path):
        """Adds the page that shows a source file. The search finds manuals, and of these pages only
        the header, which is the reference of the interface. The header's parts have headings."""
        text = (self.source / path).read_text(encoding="utf-8")
        language = LANGUAGES.get(path.suffix, "text")
        marks = "orphan: true\n" + ("" if path in REFERENCES else "nosearch: true\n")
        start, *rest = PART.split(text) if path in REFERENCES else [text]
        page = f"---\n{marks}---\n\n# {path}\n\n{code(language, start)}"
        for title, is_closed, part in zip(rest[0::3], rest[1::3], rest[2::3]):
            part = part.lstrip("\n") if is_closed else "/*" + part
            page += f"\n## {title}\n\n{code(language, part)}"
        self.write(f"{path}.md", page)

    def add_man_page(self, path, page):
        """Adds a page from the source of a manual page, which mandoc turns into HTML."""
        html = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", self.source / path],
                              check=True, capture_output=True, text=True).stdout
        html = re.sub(r'<table class="(head|foot)">.*?</table>|</?(section|div)\b[^>]*>', "", html,
                      flags=re.DOTALL)
        html = re.sub(r'href="#([A-Z-]+)"', lambda match: match.group(0).lower(), html)
        html = re.sub(r"\n\s*\n", "\n", html)
        parts = SECTION.split(html)
        text = f"# {path.stem}({path.suffix[1:]})\n"
        for title, body in zip(parts[1::2], parts[2::2]):
            title = " ".join(title.split()).capitalize()
            text += f"\n## {title}\n\n{code('{raw} html', body)}"
        self.write(page, text)

    def add_contents(self, contents):
        """Appends the tables of contents of the whole site to the first page."""
        with open(self.target / "index.md", "a", encoding="utf-8") as file:
            file.write("\n" + contents)


def main(source, target):
    shutil.rmtree(target, ignore_errors=True)
    stage = Stage(source, target)
    stage.add_manual(pathlib.PurePath("README.md"))
    for folder in FOLDERS:
        for path in sorted((source / folder).rglob("*.md")):
            stage.add_manual(path.relative_to(source))
    for path in sorted(stage.shown):
        stage.add_shown(path)
    stage.add_man_page(pathlib.PurePath("lua/loam/command/loam.1"), "lua/loam/command/loam.md")
    contents = pathlib.Path(__file__).with_name("contents.md")
    stage.add_contents(contents.read_text(encoding="utf-8"))


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
