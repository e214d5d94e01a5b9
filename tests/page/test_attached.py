"""Text files that go along with a message."""

import json

from harness import messages, said, same, say, test

ROWS = "[...document.querySelectorAll('#attached li')].map((e) => e.textContent)"
NOTICE = "document.querySelector('#notice span')?.textContent"


def attach(page, *files):
    """Chooses files: names, each with a text or the bytes of one."""
    made = ", ".join(f"new File([{json.dumps(content) if isinstance(content, str) else f'new Uint8Array({list(content)})'}],"
                     f" {json.dumps(name)})" for name, content in files)
    page.js(f"""(() => {{
      const data = new DataTransfer();
      for (const file of [{made}]) data.items.add(file);
      const field = document.querySelector('#attach-files');
      field.files = data.files;
      field.dispatchEvent(new Event('change'));
    }})()""")


@test
def files_go_along(page, mock):
    attach(page, ("a.txt", "one\n\n"), ("b", "``` two"), ("gone", "x"))
    page.wait(f"{ROWS}.length === 3")
    same(page.js(ROWS), ["a.txt (5 B)", "b (7 B)", "gone (1 B)"])
    page.click("#attached li:nth-child(3) button")
    # One of the same name takes the place of the earlier one.
    attach(page, ("a.txt", "one\n"))
    page.wait(f"{ROWS}.join() === 'b (7 B),a.txt (4 B)'")
    page.js("document.querySelector('#prompt').focus()")
    say(page, "compare")
    sent = "compare\n\nFile b:\n````\n``` two\n````\n\nFile a.txt:\n```\none\n```"
    same(said(mock.requests[-1]), [("user", sent)])
    same((page.js(ROWS), messages(page)[0]), ([], ["user", "compare"]))
    same(page.js("[...document.querySelectorAll('.user .file')].map((e) => e.textContent)"),
         ["b (7 B)``` two", "a.txt (4 B)one\n"])
    # They are kept with the message, and stay where it is changed.
    page.reload()
    page.wait("document.querySelectorAll('.user .file').length === 2 && document.activeElement.id === 'prompt'")
    page.key("ArrowUp")
    same(page.js(ROWS), ["b (7 B)", "a.txt (4 B)"])
    page.click("#attached button")
    page.type(" again")
    page.key("Enter")
    page.wait("document.querySelectorAll('.user .file').length === 1 && !document.querySelector('.running')")
    same(said(mock.requests[-1]), [("user", "compare again\n\nFile a.txt:\n```\none\n```")])
    # A message may be files alone.
    page.click("#new")
    attach(page, ("c.txt", "three"))
    page.wait(f"{ROWS}.length === 1")
    page.js("document.querySelector('#prompt').focus()")
    say(page, "")
    same(said(mock.requests[-1]), [("user", "File c.txt:\n```\nthree\n```")])
    same(page.js("document.querySelector('#chats .open').textContent"), "c.txt")


@test
def files_that_can_not_go_along(page, mock):
    for name, content in [("image", b"\xff\xfe"), ("zero", b"a\0b")]:
        attach(page, (name, content))
        page.wait(f"{NOTICE} === '{name} is no text (UTF-8).'")
    attach(page, ("large", "x" * (256 << 10)))
    page.wait(f"{NOTICE} === 'large has 256.0 KiB, and the files of a message at most 128.0 KiB.'")
    same(page.js(ROWS), [])
    # The bound is that of all files together.
    attach(page, ("one", "x" * (100 << 10)), ("two", "x" * (50 << 10)), ("three", "x"))
    page.wait(f"{ROWS}.join() === 'one (100.0 KiB),three (1 B)'")
    page.wait(f"{NOTICE} === 'two has 50.0 KiB, and the files of a message at most 128.0 KiB.'")
