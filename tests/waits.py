"""What page tests wait for: what a page does, never how long a machine may take for it."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page

#: Counts what is asked of Python's threads and has no answer yet; run before a page's scripts.
COUNTING = """
window.asked = 0;
window.unanswered = 0;
{
    const post = Worker.prototype.postMessage;
    const listening = new WeakSet();
    Worker.prototype.postMessage = function (message, ...more) {
        if (message?.type === "ask") {
            if (!listening.has(this)) {
                listening.add(this);
                this.addEventListener("message", ({ data }) => {
                    if (data.type === "answer" || data.type === "failed-answer") unanswered -= 1;
                });
            }
            asked += 1;
            unanswered += 1;
        }
        return post.call(this, message, ...more);
    };
}
"""


def theme(page: Page) -> None:
    """The theme's script has come and begun."""
    page.wait_for_function("() => 'document$' in window")


def links(page: Page) -> None:
    """The theme knows the site's pages: before that, links lead where they lead anywhere."""
    theme(page)
    page.wait_for_function(
        """() => performance.getEntriesByType("resource")
            .some(({ name, responseEnd }) => name.endsWith("/sitemap.xml") && responseEnd > 0)"""
    )


def settled(page: Page) -> None:
    """A page's scripts have made of it what they make of it, and its fonts have come."""
    links(page)
    page.wait_for_load_state("networkidle")
    page.evaluate("() => document.fonts.ready.then(() => true)")
    page.wait_for_function(
        """() => [".tm[data-runtime]", ".player", ".runner"].every((one) =>
            document.querySelectorAll(`${one}:not([data-attached])`).length === 0)"""
    )


def frames(page: Page, count: int = 2) -> None:
    """So many frames have been drawn."""
    page.evaluate(
        """(count) => new Promise((done) => {
            const next = () => (count-- > 0 ? requestAnimationFrame(next) : done());
            next();
        })""",
        count,
    )


def until(page: Page, holds: Callable[[], object]) -> None:
    """Something holds that the page's events bring about; they are heard meanwhile."""
    for _ in range(1_800):
        if holds():
            return
        page.wait_for_timeout(50)
    assert holds()
