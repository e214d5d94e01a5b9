"""What is shown of an answer while it comes, and when it fails."""

import time

from harness import LAST, messages, said, same, say, test


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
          "timings_per_token": True, "alara": {"events": True, "ask": True}})


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
    same(page.js(calls), [first, f'> shell  command: "echo \\"<b>\\"\\nexit 3"\n  failed with exit status 3, 1.00 s{lines}'
                          "\n  | … 4096 bytes left out"])
    same(page.js(f"[...{LAST}.querySelectorAll('.call summary')].map((e) => e.textContent)"), ["… 4 more"])
    page.click(".call summary")
    whole = '> shell  command: echo "<b>"\nexit 3\n  failed with exit status 3, 1.00 s'
    same(page.js("[...document.querySelectorAll('.call')].at(-1).innerText.trim()"),
         f"… 4 more\n{whole}\n" + "\n".join(f"  | line {number}" for number in range(1, 10))
         + "\n  | no\n  | … 4096 bytes left out")
    same(page.js(f"[...{LAST}.querySelectorAll('.markdown')].map((e) => e.textContent.trim())"),
         ["I look.", "I wrote hello.txt."])
    same(page.js(f"{LAST}.querySelector('.body').lastChild.textContent"), "I wrote hello.txt.")
    same(page.js("document.querySelector('#status').textContent.replace(/[0-9.]+ s ·/, 'N s ·')"),
         "worker · 1079 prompt tokens (541 cached, 50 %) · 34 generated at 926.9 tokens/s · N s · trace 17-1")
    same(mock.requests[-1]["model"], "worker")
    say(page, "agent-at-end")
    same(page.js(calls), ["> write_file\n  ok", "> shell\n  failed"])
    same(page.js(f"{LAST}.querySelector('.body').lastChild.textContent"), "I wrote hello.txt.")
    # An NPC's calls are its own: what is sent is what was said.
    same(said(mock.requests[-1])[1], ("assistant", "I look. \n\nI wrote hello.txt."))


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
def lead(page, mock):
    chosen = "document.querySelector('#model').value"
    same(page.js(chosen), "alara-tiny.gguf")
    mock.lead = "worker"
    try:
        page.reload()
        page.wait(f"{chosen} === 'worker'")
        say(page, "one")
        same(mock.requests[-1]["model"], "worker")
        # Whoever has chosen another one finds that.
        page.js("""(() => {
          const model = document.querySelector('#model');
          model.value = 'writer';
          model.dispatchEvent(new Event('change'));
        })()""")
        page.click("#new")
        same(page.js(chosen), "writer")
        page.reload()
        page.wait(f"{chosen} === 'writer'")
    finally:
        mock.lead = None


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
