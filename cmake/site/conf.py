# conf.py - how Sphinx makes the site of the manuals from the pages that stage.py has collected.
#
# The site needs no other host: the theme contains its styles and scripts, and the browser takes
# fonts of the reader's machine.
import pathlib
import re
import shutil

header = pathlib.Path(__file__).parents[2] / "core/include/loam.h"
numbers = re.findall(r"^#define LOAM_VERSION_\w+ (\d+)$", header.read_text(), re.MULTILINE)

project = "loam"
version = release = ".".join(numbers)
extensions = ["myst_parser"]
root_doc = "index"
language = "en"
highlight_language = "text"
myst_heading_anchors = 6

html_theme = "furo"
html_title = f"loam {release}"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
smartquotes = False


def mend_theme(app, exception):
    """Repairs three faults of the theme in Debian 12's package, in the finished site. One style is
    loaded from the root of a web server. The script imports another script, which browsers refuse
    in a plain script. The rule for readers whose system is dark is missing. A package without a
    fault stays unchanged."""
    static = pathlib.Path(app.outdir) / "_static"
    if exception or not static.is_dir():
        return
    styles, scripts = static / "styles/furo.css", static / "scripts/furo.js"
    css, rooted = styles.read_text(), "/javascript/normalize.css/normalize.css"
    if f"url({rooted})" in css:
        shutil.copyfile(f"/usr/share{rooted}", static / "styles/normalize.css")
        css = css.replace(f"url({rooted})", "url(normalize.css)")
    dark = re.search(r'body\[data-theme="dark"\] \{([^}]*)\}', css)
    if dark and "prefers-color-scheme" not in css:
        css += ("@media screen and (prefers-color-scheme: dark) {\n"
                f'body:not([data-theme="light"]) {{{dark.group(1)}}}\n}}\n')
    styles.write_text(css)
    script, line = scripts.read_text(), 'import Gumshoe from "./gumshoe-patched.js";\n'
    if script.startswith(line):
        scripts.write_text((static / "scripts/gumshoe-patched.js").read_text() + script[len(line):])


def setup(app):
    app.connect("build-finished", mend_theme)
