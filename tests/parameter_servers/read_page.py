# SPDX-License-Identifier: Apache-2.0
"""Reads a coordinator's page with Python's HTML parser, and writes its tables' rows, cells between tabs.

    read_page.py http://127.0.0.1:8080/

Fails where tags do not match, and for anything that the page would load or run.
"""
import html.parser
import sys
import urllib.request

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.rows, self.refresh, self.title = [], [], None, ""

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        assert tag not in ("script", "img", "link", "iframe", "object"), f"a <{tag}>"
        assert not any(name.startswith("on") or name in ("src", "href") for name in known), known
        if known.get("http-equiv") == "refresh":
            self.refresh = int(known["content"])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag in ("dt", "dd"):
            if tag == "dt":
                self.rows.append([""])
            else:
                self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open}"
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "title":
            self.title += data
        if self.open and self.open[-1] in ("td", "th", "dt", "dd"):
            self.rows[-1][-1] += data


def main():
    with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
        assert answer.headers.get_content_type() == "text/html", answer.headers
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        text = answer.read().decode("utf-8")
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open, page.open
    assert page.refresh and page.title, (page.refresh, page.title)
    for row in page.rows:
        print("\t".join(row))


main()
