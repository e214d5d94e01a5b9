"""What all tests of the page need: they are given a page and the server behind it.

Those of `TESTS` have a server with recorded answers, those of `SERVED` a real one.
"""

from browser import Failure

TESTS, SERVED = {}, {}
LAST = "[...document.querySelectorAll('.assistant')].at(-1)"


def test(function):
    TESTS[function.__name__] = function
    return function


def served(function):
    SERVED[function.__name__] = function
    return function


def same(found, expected):
    if found != expected:
        raise Failure(f"found {found!r}, expected {expected!r}")


def say(page, text, idle=True):
    """Says something by keys alone; waits for the answer if `idle`."""
    page.wait("document.activeElement.id === 'prompt'")
    answers_before = page.js("document.querySelectorAll('.assistant').length")
    page.type(text)
    page.key("Enter")
    page.wait(f"document.querySelectorAll('.assistant').length > {answers_before}")
    if idle:
        page.wait("!document.querySelector('.running')")


def messages(page):
    """Who said what."""
    return page.js("[...document.querySelectorAll('.message')].map((message) =>"
                   " [message.classList[1], message.querySelector('.body').textContent])")


def said(body):
    return [(message["role"], message["content"]) for message in body["messages"]]
