"""Markdown, also a hostile one."""

import json
import pathlib

import answers
from browser import Failure
from harness import LAST, same, say, test


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
             "a table\n| a | b |\n|--|--x\n\n| a | b |\n|--|--|\n| c | d |",
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
      for (const line of ['*a* ', '*a_ ', '1|2\n']) {
        new Markdown(document.createElement('div')).show('- a\n\na|b\n-|-\n' + line.repeat(130000));
      }
      return slow;
    })()""")
    same(slow, [])


@test
def markdown_takes_time_in_proportion(page, mock):
    here = pathlib.Path(__file__).parent
    code = (here / "linear.js").read_text().replace("export ", "")
    hostile = (here / "hostile.json").read_text()
    slow = []
    for place in ("undefined", "document.querySelector('#log')"):
        # Some at a time: the browser has to answer in time.
        for first in range(0, 300, 10):
            slow += page.js(f"""(async () => {{
              {code}
              const {{ Markdown }} = await import('./markdown.js');
              const some = attacks({hostile}).slice({first}, {first + 10});
              return superlinear(Markdown, some, 10000, {place});
            }})()""")
    same(slow, [])


@test
def emphasis_ends_where_a_browser_would_take_long(page, mock):
    nested = page.js(r"""(async () => {
      const { Markdown } = await import('./markdown.js');
      const root = document.createElement('div');
      new Markdown(root).show('*a '.repeat(20) + 'x' + ' a*'.repeat(20));
      return [root.textContent, root.querySelectorAll('em').length];
    })()""")
    same(nested, ["a " * 16 + "*a " * 4 + "x" + " a*" * 4 + " a" * 16, 16])


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
            raise Failure(f"{text} is not shown")
    # Nor does it become more when it is read from the storage, or is a title.
    page.reload()
    page.wait("document.querySelector('.assistant table')")
    same(page.js("document.querySelector('aside .open').textContent"), "hostile <img src=x onerror=window.hacked=1>")
    same(page.js("window.hacked"), None)
