"""Tests of the page that `alara serve` has at /: a headless Chromium and a server with recorded answers.

    python3 tests/page/run.py [NAME…] [--shots DIR]

Says "skipped: no chromium" where there is none. `--shots` leaves pictures, to look at.
"""

import argparse
import json
import pathlib
import sys
import time
import traceback

import answers
import browser
from mock import Mock

TESTS = {}
LAST = "[...document.querySelectorAll('.assistant')].at(-1)"


def test(function):
    TESTS[function.__name__] = function
    return function


def same(found, expected):
    if found != expected:
        raise browser.Failure(f"found {found!r}, expected {expected!r}")


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


@test
def text_streams(page, mock):
    same(page.js("[...document.querySelectorAll('#model option')].map((o) => o.value).join()"),
         "alara-tiny.gguf,worker,writer")
    say(page, "slowly", idle=False)
    page.wait(f"{LAST}.querySelector('.body').textContent === 'You sai'")
    same(page.js("document.querySelector('#send').ariaLabel"), "Stop")
    page.wait("/answers · 0 s · Escape stops/.test(document.querySelector('#status').textContent)")
    page.wait("!document.querySelector('.running')")
    same(messages(page), [["user", "slowly"], ["assistant", "You said slowly."]])
    status = page.js("document.querySelector('#status').textContent")
    same(status[:-5], "alara-tiny.gguf · 100 prompt tokens (80 cached, 80 %) · 20 generated at 926.9 tokens/s · ")
    same(page.js("document.querySelector('#live').textContent"), "You said slowly.")
    same(page.js("document.title"), "slowly – alara")
    same(page.js("document.querySelector('#send').ariaLabel"), "Send")
    same({key: mock.requests[0][key] for key in mock.requests[0] if key != "messages"},
         {"model": "alara-tiny.gguf", "stream": True, "stream_options": {"include_usage": True},
          "timings_per_token": True})


@test
def markdown(page, mock):
    say(page, "markdown")
    page.wait(f"{LAST}.querySelector('.markdown > p:last-child')")
    tree = page.js(f"""(() => {{
      const text = (node) => node.nodeType === 3 ? node.data : node.localName === 'br' ? '/'
        : `<${{node.localName}}>${{[...node.childNodes].map(text).join('')}}</>`;
      return [...{LAST}.querySelector('.markdown').children].map(text);
    }})()""")
    same(tree, [
        "<h1>Title</>",
        "<p>A <em>first</> line with <strong>bold</>, <code>code</>, <del>old</> and a <a>link</>./"
        "Its second line; snake_case_name and 2 * 3 * 4 stay.</>",
        "<ol><li><p>one</></><li><p>two</><ul><li><p>inner <em>item</></><ul><li><p>deeper</></></></></></>"
        "<li><p>three</></></>",
        "<ul><li><p>[x] done</></><li><p>[ ] open</></></>",
        "<blockquote><p>A quote/of two lines</></>",
        "<div><table><thead><tr><th>name</><th>count</></></><tbody><tr><td><code>a|b</></><td>1</></>"
        "<tr><td>b | c</><td>22</></></></></>",
        '<div><div><span>python</><button>Copy</></><pre><code>def f(x):\n    return "<b>" + x  # *no emphasis*</></></>',
        "<hr></>",
        "<p>See <a>https://example.com/path_(x)</>. The end.</>",
    ])
    same(page.js(f"[...{LAST}.querySelectorAll('a')].map((a) => [a.href, a.rel, a.target])"),
         [[url, "noreferrer", "_blank"]
          for url in ("https://example.com/a_b_c", "https://example.com/path_(x)")])
    page.browser.command("Browser.grantPermissions", browserContextId=page.context,
                         permissions=["clipboardReadWrite"])
    page.click(".copy")
    page.wait("document.querySelector('.copy').dataset.told === 'Copied'")
    same(page.js("navigator.clipboard.readText()"), 'def f(x):\n    return "<b>" + x  # *no emphasis*')


@test
def markdown_is_the_same_however_it_comes(page, mock):
    texts = [answers.MARKDOWN, answers.HOSTILE, answers.WIDE[:1500],
             "a\n#b\n# c\n-\n- d\n---\ne | f\n--|--\n1 | 2\nno row\n\n~~~~\n```\n~~~\n~~~~\n1. x\n\n   y\n2) z\n> q\n> > r\nend",
             "**a *b** c* ***d*** __e_f__ *[g*](https://h.i) [[j](https://k.l)](https://m.n) `` ` `` \\*o\\* ~p~ *"]
    same(page.js(f"""(async () => {{
      const {{ Markdown }} = await import('./markdown.js');
      const wrong = [];
      for (const text of {json.dumps(texts)}) {{
        const [piece, whole] = [document.createElement('div'), document.createElement('div')];
        const pieces = new Markdown(piece);
        for (let end = 1; end <= text.length; end++) pieces.show(text.slice(0, end));
        new Markdown(whole).show(text);
        if (piece.innerHTML !== whole.innerHTML) wrong.push([piece.innerHTML, whole.innerHTML]);
        // What was shown is what was written, marks aside.
        if (!whole.textContent) wrong.push('nothing');
      }}
      return wrong;
    }})()"""), [])
    inline = page.js("""(async () => {
      const { Markdown } = await import('./markdown.js');
      const root = document.createElement('div');
      new Markdown(root).show(TEXT);
      return root.innerHTML.replaceAll(/ (target|rel|title)="[^"]*"/g, '');
    })()""".replace("TEXT", json.dumps(texts[-1])))
    same(inline, "<p><em><em>a <em>b</em></em> c</em> <em><strong>d</strong></em> <strong>e_f</strong> "
                 '*<a href="https://h.i">g*</a> <a href="https://m.n">j</a> <code>`</code> *o* ~p~ *</p>')


@test
def hostile_markdown_takes_no_time(page, mock):
    slow = page.js(r"""(async () => {
      const { Markdown } = await import('./markdown.js');
      const slow = [];
      const lines = ['*a ', '[', '![', '`', '_*', '](', '[a](', '> ', '- ', '# ', '|', '~', '<', '&lt;', '\\',
        ' ', '[a](x "', 'https://', '*a **b ', '((', '``` ', 'a|b\n-|-\n', '- a\n', '\n', '\t', '``` `', '-- '];
      for (const line of lines) for (const begin of ['', 'a', '#', '```', '](', '- ', '[a](']) {
        const start = performance.now();
        new Markdown(document.createElement('div')).show(begin + line.repeat(20000 / line.length) + 'x');
        const took = performance.now() - start;
        if (took > 1000) slow.push([begin, line, took]);
      }
      // So much of it that it can't be given to a function as arguments.
      for (const line of ['*a* ', '1|2\n']) {
        new Markdown(document.createElement('div')).show('- a\n\na|b\n-|-\n' + line.repeat(130000));
      }
      return slow;
    })()""")
    same(slow, [])


@test
def hostile_text_stays_text(page, mock):
    say(page, "hostile <img src=x onerror=window.hacked=1>")
    page.wait(f"{LAST}.querySelector('table')")
    same(page.js("[...document.querySelectorAll('.message :is(img, script, iframe, style, svg:not(.who svg), object,"
                 " form)')].map((node) => node.outerHTML)"), [])
    same(page.js("[...document.querySelectorAll('.message a')].filter((a) => !/^https?:/.test(a.href)"
                 " || a.attributes.length !== 4).map((a) => a.outerHTML)"), [])
    same(page.js("window.hacked"), None)
    shown = page.js(f"{LAST}.textContent")
    for text in ("<script>window.hacked=1</script>", "[js](javascript:window.hacked=1)", "<b> turned \ufffdtxt.exe",
                 "</code></pre>", "<svg onload"):
        if text not in shown:
            raise browser.Failure(f"{text} is not shown")
    # Nor does it become more when it is read from the storage, or is a title.
    page.reload()
    page.wait("document.querySelector('.assistant table')")
    same(page.js("document.querySelector('aside .open').textContent"), "hostile <img src=x onerror=window.hacked=1>")
    same(page.js("window.hacked"), None)


@test
def reasoning_is_folded(page, mock):
    say(page, "reasoning", idle=False)
    page.wait(f"{LAST}.querySelector('details')?.open === false")
    same(page.js(f"{LAST}.querySelector('.markdown')"), None)
    page.wait("!document.querySelector('.running')")
    same(page.js(f"[...{LAST}.querySelector('details').children].map((e) => e.textContent)"),
         ["Reasoning", "First I think <b>hard</b>."])
    say(page, "next")
    same(said(mock.requests[-1]), [("user", "reasoning"), ("assistant", "Forty-two."), ("user", "next")])


@test
def calls_of_an_npc(page, mock):
    page.js("document.querySelector('#model').value = 'worker'")
    say(page, "agent", idle=False)
    page.wait(f"{LAST}.querySelector('.call pre')?.textContent === '> write_file  path: hello.txt  content: hello\\n  …'")
    page.wait("!document.querySelector('.running')")
    calls = f"[...{LAST}.querySelectorAll('.call > pre')].map((e) => e.textContent)"
    first = "> write_file  path: hello.txt  content: hello\n  ok, 0.16 s\n  | wrote hello.txt"
    lines = "".join(f"\n  | line {number}" for number in range(1, 7))
    same(page.js(calls), [first, f'> shell  command: "echo \\"<b>\\"\\nexit 3"\n  failed with exit status 3, 1.00 s{lines}'])
    same(page.js(f"[...{LAST}.querySelectorAll('.call summary')].map((e) => e.textContent)"), ["… 3 more"])
    page.click(".call summary")
    whole = '> shell  command: echo "<b>"\nexit 3\n  failed with exit status 3, 1.00 s'
    same(page.js("[...document.querySelectorAll('.call')].at(-1).innerText.trim()"),
         f"… 3 more\n{whole}\n" + "\n".join(f"  | line {number}" for number in range(1, 10)))
    same(page.js(f"{LAST}.querySelector('.body').lastChild.textContent"), "I wrote hello.txt.")
    same(page.js("document.querySelector('#status').textContent.replace(/[0-9.]+ s ·/, 'N s ·')"),
         "worker · 1079 prompt tokens (541 cached, 50 %) · 34 generated at 926.9 tokens/s · N s · trace 17-1")
    same(mock.requests[-1]["model"], "worker")
    say(page, "agent-at-end")
    same(page.js(calls), ["> write_file\n  ok", "> shell\n  failed"])
    same(page.js(f"{LAST}.querySelector('.body').lastChild.textContent"), "I wrote hello.txt.")
    # An NPC's calls are its own: what is sent is what was said.
    same(said(mock.requests[-1])[1], ("assistant", "I wrote hello.txt."))


@test
def errors(page, mock):
    error = f"{LAST}.querySelector('.error span')?.textContent"
    for word, text in [("refused", "Error: the agent ended: too many turns"),
                       ("busy", "Error: all slots are taken (try again in 3 s)")]:
        say(page, word)
        same(page.js(error), text)
        same(page.js("document.querySelector('#live').textContent"), text)
        page.click(".error button")
        page.wait(f"{LAST}.querySelector('.body').textContent === 'You said {word}.'")
        page.wait("!document.querySelector('.running')")
        same(page.js(error), None)
        page.js("document.querySelector('#prompt').focus()")
    for word, text in [("broken", "Error: the model failed: out of memory"),
                       ("lost", "Error: the connection ended before the answer did"),
                       ("proxy", "Error: <h1>Bad gateway</h1>")]:
        say(page, word)
        same(page.js(error), text)
    same(page.js("[...document.querySelectorAll('.assistant .body')].slice(-3).map((e) => e.textContent)"),
         ["half", "half an ans", ""])
    for word, text in [("length", "cut off: no more tokens are allowed"), ("repeats", "cut off: it repeats itself")]:
        say(page, word)
        same(page.js(f"{LAST}.querySelector('.remark').textContent"), text)
    # What was not answered goes with what follows, so that user and assistant take turns.
    roles = [role for role, _ in said(mock.requests[-1])]
    same(roles, ["user", "assistant"] * (len(roles) // 2) + ["user"])


@test
def no_server(page, mock):
    page.command("Network.emulateNetworkConditions", offline=True, latency=0,
                 downloadThroughput=-1, uploadThroughput=-1)
    say(page, "hello")
    same(page.js(f"{LAST}.querySelector('.error span').textContent"), "Error: the server can't be reached")
    page.command("Network.emulateNetworkConditions", offline=False, latency=0,
                 downloadThroughput=-1, uploadThroughput=-1)
    page.click(".error button")
    page.wait(f"{LAST}.querySelector('.body').textContent === 'You said hello.'")


@test
def stop(page, mock):
    for act in (lambda: page.key("Escape"), lambda: page.click("#send")):
        before = mock.left
        say(page, "slow", idle=False)
        page.wait(f"/word3/.test({LAST}.textContent)")
        act()
        page.wait("!document.querySelector('.running')")
        same(page.js(f"{LAST}.querySelector('.remark').textContent"), "stopped")
        end = time.monotonic() + 5
        while mock.left == before and time.monotonic() < end:
            time.sleep(0.02)
        same(mock.left, before + 1)
    say(page, "next")
    same(messages(page)[-1], ["assistant", "You said next."])
    kept = said(mock.requests[-1])[1]
    same((kept[0], kept[1].startswith("word0 word1 word2 word3")), ("assistant", True))


@test
def edit_and_retry(page, mock):
    say(page, "one")
    say(page, "two")
    # Up edits the last one, and Escape leaves it.
    page.key("ArrowUp")
    same(page.js("document.activeElement.value"), "two")
    same(page.js("document.querySelector('.editing').textContent"), "Youtwo")
    page.key("Escape")
    same(page.js("[document.activeElement.id, document.activeElement.value, document.querySelector('.editing')]"),
         ["prompt", "", None])
    same([text for _, text in messages(page)], ["one", "You said one.", "two", "You said two."])
    page.key("ArrowUp")
    page.type(" more")
    page.key("Enter", control=True)
    page.wait(f"{LAST}.textContent.includes('You said two.') && !document.querySelector('.running')")
    same(said(mock.requests[-1]), [("user", "one"), ("assistant", "You said one."), ("user", "two more")])
    # So does the button, of any message; all behind it goes, and what else was written stays.
    page.type("a draft")
    page.click(".user [aria-label='Edit and retry']")
    same(page.js("[document.activeElement.id, document.activeElement.value]"), ["prompt", "one"])
    page.js("document.activeElement.value = 'first'")
    page.key("Enter")
    page.wait(f"{LAST}?.textContent.includes('You said first.')")
    page.wait("!document.querySelector('.running')")
    same(messages(page), [["user", "first"], ["assistant", "You said first."]])
    same(page.js("document.querySelector('#prompt').value"), "a draft")
    page.js("document.querySelector('#prompt').value = ''")
    page.click("[aria-label=Regenerate]")
    page.wait("document.querySelector('.running')")
    page.wait("!document.querySelector('.running')")
    same(messages(page), [["user", "first"], ["assistant", "You said first."]])
    same([said(body) for body in mock.requests[-2:]], [[("user", "first")]] * 2)
    # While an answer comes, another is stopped first.
    say(page, "slow", idle=False)
    page.wait(f"/word1/.test({LAST}.textContent)")
    page.click(".user [aria-label='Edit and retry']")
    page.key("Enter")
    page.wait(f"{LAST}?.textContent.includes('You said first.')")
    same(len(messages(page)), 2)


@test
def history(page, mock):
    say(page, "one")
    page.click("#new")
    say(page, "agent")
    before = messages(page)
    page.reload()
    page.wait("document.querySelector('.assistant .call')")
    same(messages(page), before)
    same(page.js("document.querySelector('#status').textContent.includes('1079 prompt tokens')"), True)
    titles = "[...document.querySelectorAll('#chats .open')].map((e) => e.textContent)"
    same(page.js(titles), ["agent", "one"])
    page.click("#chats li:nth-child(2) .open")
    same(messages(page), [["user", "one"], ["assistant", "You said one."]])
    # An answer goes on while another chat is open.
    say(page, "slow", idle=False)
    page.click("#chats li:nth-child(2) .open")
    page.wait("/answers in “one”/.test(document.querySelector('#status').textContent)")
    page.click("#chats li:nth-child(1) .open")
    page.wait(f"/word9/.test({LAST}.textContent)")
    page.key("Escape")
    page.wait("!document.querySelector('.running')")
    # Rename.
    page.answer = "renamed"
    page.click("#chats [aria-label^=Rename]")
    same(page.js(titles), ["renamed", "agent"])
    same(page.js("document.activeElement.textContent"), "renamed")
    # Delete and undo.
    page.click("#chats [aria-label^=Delete]")
    same(page.js(titles), ["agent"])
    same(messages(page), [])
    page.click("#notice button")
    same(page.js(titles), ["renamed", "agent"])
    # Export, delete all, import.
    page.js("""(() => {
      const make = URL.createObjectURL;
      URL.createObjectURL = (blob) => (window.exported = blob.text(), make(blob));
    })()""")
    page.command("Browser.setDownloadBehavior", behavior="deny", browserContextId=page.context)
    page.click("#export")
    exported = page.js("window.exported")
    same([chat["title"] for chat in json.loads(exported)["chats"]], ["renamed", "agent"])
    for _ in range(2):
        page.click("#chats [aria-label^=Delete]")
    same(page.js(titles), [])

    def take(text):
        page.js(f"""(() => {{
          const data = new DataTransfer();
          data.items.add(new File([{json.dumps(text)}], 'chats.json'));
          const field = document.querySelector('#file');
          field.files = data.files;
          field.dispatchEvent(new Event('change'));
        }})()""")
    take(exported)
    page.wait("document.querySelector('#notice').textContent === '2 chats imported from chats.json.'")
    same(page.js(titles), ["renamed", "agent"])
    page.reload()
    page.wait(f"{titles}.length === 2")
    page.click("#chats li:nth-child(2) .open")
    same(messages(page), before)
    for text in ("{", "[]", '{"format": "alara-chats", "version": 1, "chats": [{"id": "x"}]}',
                 json.dumps({"format": "alara-chats", "version": 1, "chats": [
                     {"id": "x", "title": "t", "updated": 1, "messages": [{"role": "assistant", "model": "m", "parts": [
                         {"kind": "constructor", "text": "x"}]}]}]})):
        take(text)
        page.wait("/chats.json: (this is no file|chat 1 of the file is damaged)/"
                  ".test(document.querySelector('#notice').textContent)")
        page.click("#notice .icon")
    same(page.js(titles), ["renamed", "agent"])


@test
def history_is_bounded(page, mock):
    page.js("""(() => {
      for (let n = 0; n < 4; n++) {
        const chat = {id: `c${n}`, title: `chat ${n}`, updated: n,
          messages: [{role: 'user', content: 'x'.repeat(990000)}]};
        localStorage.setItem(`alara.chat.c${n}`, JSON.stringify(chat));
      }
      // What is no chat is left out, and harms nothing.
      localStorage.setItem('alara.chat.bad', '{"id": "bad"}');
      localStorage.setItem('alara.chat.worse', 'null');
    })()""")
    page.reload()
    page.wait("document.querySelectorAll('#chats li').length === 4")
    say(page, "x " + "y" * 50000)
    same(page.js("[...document.querySelectorAll('#chats .open')].map((e) => e.textContent).slice(1).join()"),
         "chat 3,chat 2,chat 1")
    same(page.js("localStorage.getItem('alara.chat.c0')"), None)
    same(page.js("document.querySelector('#notice span').textContent"),
         "The oldest chat, “chat 0”, was removed to make room.")


@test
def no_storage(page, mock):
    page.command("Page.addScriptToEvaluateOnNewDocument", source="""
      for (const name of ['localStorage', 'sessionStorage']) Object.defineProperty(window, name, {
        get() { throw new DOMException('forbidden', 'SecurityError'); } });""")
    page.reload()
    page.wait("document.querySelector('#model option')")
    say(page, "one")
    same(page.js("document.querySelector('#notice span').textContent"),
         "The browser can't keep this chat: it is gone when the page is closed.")
    page.click("#new")
    say(page, "two")
    same(page.js("[...document.querySelectorAll('#chats .open')].map((e) => e.textContent)"), ["two", "one"])
    page.click("#theme")
    page.click("#chats li:nth-child(2) .open")
    same(messages(page), [["user", "one"], ["assistant", "You said one."]])


@test
def token(page, mock):
    mock.token = "secret"
    try:
        page.reload()
        page.wait("document.querySelector('#token-dialog').open && document.activeElement.id === 'token'")
        same(page.js("document.querySelector('#token-why').textContent"), "this server wants a token")
        page.type("wrong")
        page.key("Enter")
        page.wait("document.querySelector('#token-why').textContent === 'the token is wrong'")
        page.wait("document.querySelector('#token-dialog').open")
        page.type("secret")
        page.key("Enter")
        page.wait("document.querySelectorAll('#model option').length === 3")
        page.js("document.querySelector('#prompt').focus()")
        say(page, "hello")
        same(messages(page)[-1], ["assistant", "You said hello."])
        same(page.js("[sessionStorage.getItem('alara.token'), JSON.stringify(localStorage).includes('secret')]"),
             ["secret", False])
        # One that is changed meanwhile is asked for within a chat, and the answer comes then.
        mock.token = "other"
        say(page, "again", idle=False)
        page.wait("document.querySelector('#token-dialog').open")
        page.type("other")
        page.key("Enter")
        page.wait(f"{LAST}?.textContent.includes('You said again.')")
    finally:
        mock.token = None


@test
def settings(page, mock):
    page.click("#settings")
    page.wait("document.activeElement.id === 'system'")
    page.type("Be brief.")
    page.key("Tab")
    page.type("0.5")
    page.key("Tab")
    page.type("64")
    page.key("Enter")
    page.wait("localStorage['alara.settings']")
    page.js("document.querySelector('#prompt').focus()")
    say(page, "hello")
    body = mock.requests[-1]
    same((body["temperature"], body["max_tokens"], said(body)),
         (0.5, 64, [("system", "Be brief."), ("user", "hello")]))
    page.reload()
    page.wait("document.querySelectorAll('#model option').length === 3")
    # Cancelled, and emptied.
    page.click("#settings")
    page.js("document.querySelector('#temperature').value = '2'")
    page.key("Escape")
    page.wait("!document.querySelector('dialog[open]')")
    page.click("#settings")
    same(page.js("document.querySelector('#temperature').value"), "0.5")
    page.js("for (const id of ['temperature', 'max_tokens', 'system']) document.getElementById(id).value = ''")
    page.click("#settings-dialog [value=save]")
    page.wait("JSON.parse(localStorage['alara.settings']).system === ''")
    page.js("document.querySelector('#prompt').focus()")
    say(page, "again")
    body = mock.requests[-1]
    same([name in body for name in ("temperature", "max_tokens")] + [body["messages"][0]["role"]],
         [False, False, "user"])


@test
def models(page, mock):
    page.js("""(() => {
      const model = document.querySelector('#model');
      model.value = 'writer';
      model.dispatchEvent(new Event('change'));
    })()""")
    say(page, "one")
    same(page.js(f"{LAST}.ariaLabel"), "writer")
    page.js("document.querySelector('#model').value = 'worker'")
    say(page, "two")
    same([body["model"] for body in mock.requests[-2:]], ["writer", "worker"])
    # A chat goes on with the model that answered last; a new one begins with the one chosen last.
    page.click("#new")
    same(page.js("document.querySelector('#model').value"), "writer")
    page.click("#chats .open")
    same(page.js("document.querySelector('#model').value"), "worker")


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
    same(seen[code + 1:][-5:], ["Edit and retry", "Regenerate", "Copy", "prompt", "send"])
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
def follows_what_comes_unless_one_reads(page, mock):
    page.size(400, 500)
    say(page, "markdown")
    rest = "(() => { const l = document.querySelector('#log'); return l.scrollHeight - l.scrollTop - l.clientHeight; })()"
    page.wait(f"{rest} < 2")
    # Nor does a keyboard on the screen, or a longer message, hide it.
    page.size(300, 300)
    page.wait(f"innerHeight === 300 && {rest} < 2")
    page.type("a\n" * 9)
    page.wait(f"{rest} < 2")
    page.js("document.querySelector('#prompt').value = ''")
    page.size(400, 500)
    say(page, "slow", idle=False)
    page.wait(f"/word2/.test({LAST}.textContent) && {rest} < 2")
    page.js("document.querySelector('#log').scrollTop = 0")
    page.wait(f"/word9/.test({LAST}.textContent)")
    same(page.js("document.querySelector('#log').scrollTop"), 0)
    page.key("Escape")


@test
def themes(page, mock):
    back = "getComputedStyle(document.body).backgroundColor"
    page.dark(False)
    light = page.js(back)
    page.dark(True)
    dark = page.js(back)
    if light == dark:
        raise browser.Failure("light and dark are the same")
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
    if size > 60_000:
        raise browser.Failure(f"the page has {size} bytes")


def shots(page, folder):
    """Pictures of a chat, wide and narrow, light and dark."""
    folder.mkdir(parents=True, exist_ok=True)
    page.shot(folder / "empty.png")
    for word in ("agent", "reasoning", "refused", "markdown"):
        say(page, word)
    for width, dark in [(1200, False), (1200, True), (400, False), (400, True)]:
        page.size(width, 800)
        page.dark(dark)
        page.js("document.querySelector('#log').scrollTop = 1e6")
        page.shot(folder / f"end-{width}-{'dark' if dark else 'light'}.png")
        page.js("document.querySelector('#log').scrollTop = 0")
        page.shot(folder / f"begin-{width}-{'dark' if dark else 'light'}.png")
    page.click("#menu")
    page.shot(folder / "side-400.png")
    page.key("Escape")
    page.click("#settings")
    page.shot(folder / "settings-400.png")


def check(opened, mock, name, function):
    """Runs a test on a page of its own; what went wrong, if anything did."""
    page = opened.page()
    mock.requests.clear()
    began = time.monotonic()
    try:
        page.open(mock.url)
        function(page, mock)
        page.faults += page.js("window.violations")
        page.faults += [f"asked {url}" for url in page.requests if not url.startswith((mock.url, "blob:", "data:"))]
        same(page.faults, [])
    except (browser.Failure, LookupError, ValueError) as failure:
        where = traceback.extract_tb(failure.__traceback__)
        line = next((at.lineno for at in reversed(where) if at.name == name), 0)
        return f"{name}, line {line}: {failure!r}" + "".join(f"\n  {fault}" for fault in page.faults)
    finally:
        page.close()
        print(f"{name}: {time.monotonic() - began:.1f} s")
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", metavar="NAME")
    arguments.add_argument("--shots", type=pathlib.Path, metavar="DIR")
    asked = arguments.parse_args()
    program = browser.find()
    if program is None:
        print("skipped: no chromium (Debian: apt-get install chromium; or its path in ALARA_CHROMIUM)")
        return 0
    unknown = [name for name in asked.names if name not in TESTS]
    if unknown:
        print(f"no such test: {', '.join(unknown)} (there are {', '.join(TESTS)})")
        return 2
    with browser.Browser(program) as opened:
        mock = Mock()
        if asked.shots:
            page = opened.page()
            page.open(mock.url)
            shots(page, asked.shots)
            return 0
        tests = {name: TESTS[name] for name in asked.names or TESTS}
        failures = [check(opened, mock, name, function) for name, function in tests.items()]
    failures = [failure for failure in failures if failure]
    print(*failures, f"{len(tests)} tests, {len(failures)} failed", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
