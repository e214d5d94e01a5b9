"""What an NPC asks, and what is answered."""

import answers
from harness import LAST, same, say, test

TITLE = "document.querySelector('#question strong')?.textContent"
TEXT = "document.querySelector('#question pre')?.textContent"
HIDDEN = "document.querySelector('#question').hidden"
STATE = f"{LAST}.querySelector('.call > pre')?.textContent.split('\\n')[1].trim()"


def answer(page, label):
    page.js(f"[...document.querySelectorAll('#question button')].find((e) => e.textContent === {label!r}).click()")


@test
def questions(page, mock):
    for label, given, state in [("Yes, once", "yes", "ok, 0.50 s"), ("No", "no", "failed, 0.50 s")]:
        say(page, "asks", idle=False)
        page.wait(f"!{HIDDEN}")
        same(page.js(TITLE), "worker wants to call shell:")
        same(page.js(TEXT), f"  command: rm a\n  {answers.EXACT}")
        same(page.js("document.querySelector('.answers').textContent"), "allow?Yes, onceYes, in this chatNo")
        same(page.js(STATE), "…")
        same(page.js("document.querySelector('#live').textContent"), "worker wants to call shell: allow?")
        # Whoever writes meanwhile answers nothing by it.
        same(page.js("document.activeElement.id"), "prompt")
        answer(page, label)
        page.wait("!document.querySelector('.running')")
        same((page.js(HIDDEN), page.js(STATE), mock.answered[-1]), (True, state, given))
    # Who stops the answer has not said yes.
    say(page, "asks", idle=False)
    page.wait(f"!{HIDDEN}")
    page.key("Escape")
    page.wait("!document.querySelector('.running')")
    same((page.js(HIDDEN), page.js(STATE), len(mock.answered)), (True, "not made", 2))


@test
def an_answer_for_the_chat(page, mock):
    say(page, "asks", idle=False)
    page.wait(f"!{HIDDEN}")
    # From the keyboard alone; the field has the focus then.
    page.js("document.querySelectorAll('#question button')[1].focus()")
    page.key("Enter")
    page.wait("!document.querySelector('.running')")
    say(page, "asks")
    same((page.js(STATE), mock.answered), ("ok, 0.50 s", ["session"] * 2))
    # It is about exactly that, and about this chat.
    say(page, "asks-other", idle=False)
    page.wait(f"!{HIDDEN}")
    answer(page, "No")
    page.wait("!document.querySelector('.running')")
    page.click("#new")
    say(page, "asks", idle=False)
    page.wait(f"!{HIDDEN}")
    answer(page, "No")
    page.wait("!document.querySelector('.running')")
    same(mock.answered, ["session", "session", "no", "no"])


@test
def a_question_hides_nothing(page, mock):
    say(page, "hides", idle=False)
    page.wait(f"!{HIDDEN}")
    same(page.js(TEXT), "  command: ls [4000 blanks] ;rm\ufffd a\n    [10 empty lines]\n    \ufffdb"
                        f"\n  {answers.EXACT}")
    page.size(320, 480)
    same(page.js("document.documentElement.scrollWidth"), 320)
    same(page.js("document.querySelector('#prompt').getBoundingClientRect().bottom < innerHeight"), True)
    answer(page, "No")
    page.wait("!document.querySelector('.running')")


@test
def an_answer_that_comes_too_late(page, mock):
    say(page, "asks", idle=False)
    page.wait(f"!{HIDDEN}")
    answers.WAITING.clear()
    answer(page, "Yes, once")
    page.wait("document.querySelector('#notice span')?.textContent"
              " === 'The answer did not arrive: no question with this `id` waits'")
    same((page.js(HIDDEN), mock.answered), (True, []))
    page.key("Escape")
    page.wait("!document.querySelector('.running')")
