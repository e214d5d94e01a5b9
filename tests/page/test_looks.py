"""Keys, sizes and colours."""

import pathlib

from browser import Failure
from harness import messages, same, say, test


@test
def keyboard(page, mock):
    say(page, "markdown")
    # Shift+Enter is a line; Enter while a word is composed is the input method's.
    page.type("one")
    page.key("Enter", shift=True)
    page.type("two")
    page.js("document.querySelector('#prompt').dispatchEvent("
            "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true}))")
    same(page.js("document.querySelector('#prompt').value"), "one\ntwo")
    page.key("Enter", control=True)
    page.wait("document.querySelectorAll('.assistant').length === 2 && !document.querySelector('.running')")
    same(mock.requests[-1]["messages"][-1]["content"], "one\ntwo")
    # Tab goes through all there is, in the order in which it lies there.
    page.js("document.querySelector('#new').focus()")
    seen = ["new"]
    for _ in range(60):
        page.key("Tab")
        seen.append(page.js("(() => { const e = document.activeElement; return e.id || e.ariaLabel || e.className"
                            " || e.textContent; })()"))
        if seen[-1] == "send":
            break
    code = seen.index("Copy the code")
    expected = ["new", "open", "Rename “markdown”", "Delete “markdown”", "export", "import", "model", "theme",
                "settings", "log", "Edit and retry", "Regenerate", "Copy"]
    same(seen[:len(expected)], expected)
    same(seen[code + 1:][-6:], ["Edit and retry", "Regenerate", "Copy", "attach", "prompt", "send"])
    # Each of them is seen when it has the focus.
    page.js("document.querySelector('#prompt').focus()")
    page.key("Tab", shift=True)
    same(page.js("getComputedStyle(document.activeElement).outlineStyle"), "solid")
    # Everything that can be pressed has a name.
    same(page.js("[...document.querySelectorAll('button, input, select, textarea')]"
                 ".filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)"), [])


@test
def narrow(page, mock):
    page.size(400, 700)
    say(page, "wide")
    say(page, "agent")
    page.click("#menu")
    page.wait("document.activeElement.id === 'new'")
    fits = """[document.documentElement.scrollWidth,
      ...[...document.querySelectorAll('body *')].filter((e) => !e.closest('.table, pre, svg, option, .unseen')
        && e.getClientRects().length && e.getBoundingClientRect().right > innerWidth).map((e) => e.outerHTML.slice(0, 99))]"""
    same(page.js(fits), [400])
    page.key("Escape")
    page.wait("document.activeElement.id === 'menu'")
    same(page.js("getComputedStyle(document.querySelector('aside')).visibility"), "hidden")
    same(page.js(fits), [400])
    page.click("#settings")
    same(page.js(fits), [400])
    page.key("Escape")
    # What is seen of a chat in a low window: its end, and the field.
    page.size(320, 480)
    same(page.js(fits), [320])
    same(page.js("document.querySelector('#prompt').getBoundingClientRect().bottom < innerHeight"), True)
    same(page.js("document.querySelector('#log').clientHeight > 200"), True)


@test
def themes(page, mock):
    back = "getComputedStyle(document.body).backgroundColor"
    page.dark(False)
    light = page.js(back)
    page.dark(True)
    dark = page.js(back)
    if light == dark:
        raise Failure("light and dark are the same")
    page.click("#theme")
    same(page.js(back), light)
    page.reload()
    same(page.js(back), light)
    page.click("#theme")
    page.dark(False)
    # Nothing is chosen any more: the system's again.
    same((page.js(back), page.js("localStorage.getItem('alara.theme')")), (light, None))
    # Text can be read on what it lies on: at least 4.5 to 1 (WCAG 2.2, 1.4.3).
    for is_dark in (False, True):
        page.dark(is_dark)
        same(page.js("""(() => {
          const probe = document.body.appendChild(document.createElement('i'));
          const light = (name) => {
            probe.style.color = `var(--${name})`;
            const parts = getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map((part) => {
              const c = part / 255;
              return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
            });
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
          };
          const low = [];
          for (const [text, backs] of [['text', ['back', 'side', 'raised']], ['dim', ['back', 'side', 'raised']],
              ['accent', ['back']], ['bad', ['back']], ['on-accent', ['accent']]]) {
            for (const back of backs) {
              const [one, other] = [light(text), light(back)].sort((a, b) => b - a);
              const contrast = (one + 0.05) / (other + 0.05);
              if (contrast < 4.5) low.push([text, back, contrast]);
            }
          }
          probe.remove();
          return low;
        })()"""), [])


@test
def is_small(page, mock):
    size = sum(file.stat().st_size for file in (pathlib.Path(__file__).parents[2] / "crates/server/page").iterdir())
    if size > 74_000:
        raise Failure(f"the page has {size} bytes")
