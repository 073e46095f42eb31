"""Read generated pages."""

import html
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Outline(HTMLParser):
    """Tags that are left open or closed twice, ids, and everything a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.targets, self.fetched, self.wrong = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.fetched += [attributes[n] for n in ("src", "srcset", "data", "poster") if n in attributes]
        if tag in ("link", "iframe", "object", "embed"):
            self.fetched.append(attributes.get("href", ""))
        if tag == "a" and "href" in attributes:
            self.targets.append(attributes["href"])

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def outline(text):
    """Outline of a page that closes every tag and has each id once."""
    parser = Outline()
    parser.feed(text)
    parser.close()
    assert parser.open == parser.wrong == []
    assert len(parser.ids) == len(set(parser.ids))
    return parser


def plain_text(text):
    """Text of a page without its tags, with one space between words."""
    text = re.sub(r"<(style|svg|script).*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
