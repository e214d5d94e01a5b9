"""The page from `alara serve` itself, whose team, script and model crates/cli/tests/serve/page.rs chooses."""

import re

from harness import LAST, messages, same, say, served

TOKEN = "hunter2"
CALL = f"{LAST}?.querySelector('.call > pre')?.textContent"
# What stands out of the window at the right, and how wide the page is.
WIDTH = """[document.documentElement.scrollWidth, ...[...document.querySelectorAll('body *')].filter((e) =>
  !e.closest('.table, pre, svg, option, .unseen') && e.getClientRects().length
  && e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 99))]"""


class Served:
    """A server that runs elsewhere; what it was asked is not seen."""

    def __init__(self, url):
        self.url, self.requests, self.answered = url, [], []


def choose(page, name):
    page.js(f"document.querySelector('#model').value = '{name}'")


def told(page):
    """What a message has, in its order: texts and calls."""
    return page.js(f"[...{LAST}.querySelector('.body').children].map((e) => e.className)")


@served
def calls_of_an_npc_come_live(page, server):
    same(page.js("[...document.querySelectorAll('#model option')].map((o) => o.value).join()"), "script,corca,sage")
    # The lead of the team that was named.
    same(page.js("document.querySelector('#model').value"), "corca")
    page.size(400, 700)
    choose(page, "corca")
    say(page, "count", idle=False)
    line = '> shell  command: sleep 0.5; echo one; exit 3'
    page.wait(f"{CALL} === '{line}\\n  …'")
    same(told(page), ["markdown", "call"])
    page.wait("!document.querySelector('.running')")
    shown = page.js(CALL).split("\n")
    same((shown[0], shown[1].rsplit(",", 1)[0], shown[2:]), (line, "  failed with exit status 3",
                                                              ["  | one", "  | exit status 3"]))
    same(told(page), ["markdown", "call", "markdown"])
    same(page.js(f"[...{LAST}.querySelectorAll('.markdown')].map((e) => e.textContent)"), ["I look.", "It says one."])
    same(page.js(f"{LAST}.querySelector('strong').textContent"), "says")
    same(page.js("/^corca · .* · trace [0-9]+-[0-9]+$/.test(document.querySelector('#status').textContent)"), True)
    same(page.js(WIDTH), [400])
    # A result that is long is bounded by the server, and says so.
    say(page, "long")
    same(page.js(f"/\\n  . … [0-9]+ bytes left out$/.test({CALL})"), True)
    before = messages(page)
    page.reload()
    page.wait("document.querySelectorAll('.assistant .call').length === 2")
    same(messages(page), before)


@served
def stop_ends_the_work(page, server):
    choose(page, "corca")
    say(page, "wait", idle=False)
    page.wait(f"/sleep 60/.test({CALL})")
    page.key("Escape")
    page.wait("!document.querySelector('.running')")
    same(page.js(f"{LAST}.querySelector('.remark').textContent"), "stopped")
    same(page.js(CALL), "> shell  command: sleep 60\n  not made")
    # One request is worked on at a time: the next one is answered once the work has ended.
    choose(page, "sage")
    say(page, "first")
    same(messages(page)[-1], ["assistant", "One."])


@served
def edit_and_retry_and_errors(page, server):
    choose(page, "sage")
    say(page, "second")
    same(messages(page)[-1], ["assistant", "Two."])
    page.key("ArrowUp")
    page.type(" more: third")
    page.key("Enter")
    page.wait(f"{LAST}?.textContent.includes('Three.') && !document.querySelector('.running')")
    same(messages(page), [["user", "second more: third"], ["assistant", "Three."]])
    say(page, "unheard")
    same(page.js(f"/^Error: .*the script has no reply/.test({LAST}.querySelector('.error span').textContent)"), True)
    same(page.js(f"{LAST}.querySelector('.error button').textContent"), "Retry")


@served
def token_and_costs(page, server):
    same(page.js("document.querySelectorAll('#model option').length"), 0)
    for token in ("wrong", TOKEN):
        page.wait("document.querySelector('#token-dialog').open && document.activeElement.id === 'token'")
        page.type(token)
        page.key("Enter")
        page.wait("!document.querySelector('#token-dialog').open || /wrong/.test("
                  "document.querySelector('#token-why').textContent)")
    page.wait("document.querySelector('#model option')")
    page.js("localStorage.setItem('alara.settings', JSON.stringify({max_tokens: '24'}))")
    page.reload()
    page.wait("document.querySelector('#model option') && document.activeElement.id === 'prompt'")
    choose(page, "alara-tiny.gguf")
    cached = []
    for text in ("Say hello.", "Say it again."):
        say(page, text)
        status = page.js("document.querySelector('#status').textContent")
        found = re.search(r" · \d+ prompt tokens \((\d+) cached, \d+ %\) · \d+ generated at [\d.]+ tokens/s · ", status)
        cached.append(int(found[1]) if found else status)
    same(cached[1] > 10, True)


@served
def questions_are_answered(page, server):
    choose(page, "corca")
    for answer, verdict in [("No", "failed"), ("Yes, in this chat", "ok")]:
        say(page, "note", idle=False)
        page.wait("!document.querySelector('#question').hidden")
        same(page.js("document.querySelector('#question strong').textContent"), "corca wants to call shell:")
        same(page.js("document.querySelector('#question pre').textContent.split('\\n')[0]"),
             "  command: echo seven")
        page.js("[...document.querySelectorAll('#question button')]"
                f".find((e) => e.textContent === {answer!r}).click()")
        page.wait("!document.querySelector('.running')")
        same(page.js(CALL).split("\n")[1].split(",")[0].strip(), verdict)
    # What was answered for the chat is not asked again.
    say(page, "note")
    same(page.js(CALL).split("\n")[1].split(",")[0].strip(), "ok")
