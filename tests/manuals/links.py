# links.py - finds dead links of a site, and links that a browser would load from other hosts:
# links.py SITE
#
# A link may lead to a file of the site, and to a place (#name) in it. Pages may name other hosts,
# but take no style, script, picture or font from them: the site must work without a network.
import html.parser
import pathlib
import re
import sys
import urllib.parse

LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "object": "data"}


class Page(html.parser.HTMLParser):
    """The names of a page, and its links as pairs of the target and whether a browser loads it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names.update(attributes[key] for key in ("id", "name") if attributes.get(key))
        if tag == "a" and "href" in attributes:
            self.links.append((attributes["href"], False))
        elif attributes.get(LOADED.get(tag)):
            self.links.append((attributes[LOADED[tag]], True))


def fault(site, pages, page, link, is_loaded):
    """Returns a description of the fault of a link, or None if the link is right."""
    target = urllib.parse.urlsplit(link)
    if target.scheme or target.netloc:
        return "is taken from another host" if is_loaded and target.scheme != "data" else None
    path = urllib.parse.unquote(target.path)
    file = (page.parent / path).resolve() if path else page
    if not file.is_file() or site not in file.parents:
        return "leads nowhere"
    name = urllib.parse.unquote(target.fragment)
    if name and file in pages and name not in pages[file].names:
        return "names a place that is not there"
    return None


def main(site):
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = [(path, link, loaded) for path, page in pages.items() for link, loaded in page.links]
    for path in site.rglob("*.css"):
        found += [(path, link.strip("'\""), True)
                  for link in re.findall(r"url\(([^)]+)\)", path.read_text(encoding="utf-8"))]
    faults = [f"{path.relative_to(site)}: {link} {words}" for path, link, loaded in found
              if (words := fault(site, pages, path, link, loaded))]
    print("\n".join(sorted(set(faults))) or f"{len(found)} links of {len(pages)} pages")
    return 1 if faults or not pages else 0


sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
