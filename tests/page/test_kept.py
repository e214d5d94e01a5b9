"""What is kept in the browser: chats, the token, settings."""

import json

from harness import LAST, messages, said, same, say, test


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
