//! The tools that read and write files: they change no byte that they weren't asked to change.

use std::path::Path;

use super::*;

/// A work directory in which the stock tools are called.
struct Tools(Fixture);

impl Tools {
    fn new() -> Self {
        Tools(Fixture::new())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.work().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn call(&self, tool: &str, arguments: &Value) -> ToolResult {
        let model = Scripted::default();
        let source = Single(&model);
        let session = Session::new(&source, &self.0.sandbox);
        let npc = self.0.team.npcs.iter().find(|npc| npc.name == "worker");
        let caller = Caller { npc, ..Caller::person(&session, &self.0.team) };
        let call = alara_engine::ToolCall {
            id: String::new(),
            name: tool.to_owned(),
            arguments: arguments.as_object().unwrap().clone(),
        };
        crate::run::tool::execute(&caller, &crate::run::tool::Offered::of(&npc.unwrap().jinxes), &call)
            .unwrap()
    }

    /// Makes these edits in a file with these bytes; `after` are its bytes afterwards, and `told`
    /// is the note about them.
    fn edit(&self, before: &[u8], edits: Value, after: &[u8], told: &str) {
        self.write("f", before);
        let mut arguments = if edits.is_array() { json!({"edits": edits}) } else { edits };
        arguments["path"] = json!("f");
        let result = self.call("edit_file", &arguments);
        let text = if result.ok { result.output_text() } else { result.complaint() };
        assert_eq!(text.trim_end(), told, "{arguments}");
        assert_eq!(result.ok, before != after, "{arguments}");
        let found = self.read("f");
        assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(after), "{arguments}");
        assert_eq!(found, after, "{arguments}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.map(|name| name.into_string().unwrap()).collect()
}

fn one(find: &str, replace: &str) -> Value {
    json!({"find": find, "replace": replace})
}

#[test]
fn edit_file_changes_no_other_byte() {
    let tools = Tools::new();
    let check = |before: &[u8], find: &str, replace: &str, after: &[u8]| {
        tools.edit(before, one(find, replace), after, "changed f");
    };
    check(b"a=1\r\nb=2\r\nc=3\r\n", "b=2", "b=9", b"a=1\r\nb=9\r\nc=3\r\n");
    check(b"a=1\r\nb=2\nc=3", "b=2", "b=9", b"a=1\r\nb=9\nc=3");
    check(b"a=1\rb=2\rc=3", "b=2", "b\nx", b"a=1\rb\rx\rc=3");
    check(b"a=1\r\nb=2\r\n", "b=2", "b\nx", b"a=1\r\nb\r\nx\r\n");
    check(b"a\n", "a", "b\r\nc", b"b\r\nc\n");
    check(b"no end", "no", "an", b"an end");
    check(b"\xef\xbb\xbfmark\n", "mark", "text", b"\xef\xbb\xbftext\n");
    check(b"caf\xe9 x\n", "caf\u{e9}", "th\u{e9}", b"th\xe9 x\n");
    check(b"\xff caf\xc3\xa9 \xe9\n", "caf\u{e9}", "th\u{e9}", b"\xff th\xc3\xa9 \xe9\n");
    check(b"\xff\xfea\0b\0\n\0", "b", "\u{e9}", b"\xff\xfea\0\xe9\0\n\0");
    check(b"a\0b\x1bc", "b", "d", b"a\0d\x1bc");
    check(b"x \t\r\n\r\r\n", "x", "", b" \t\r\n\r\r\n");
    tools.edit(
        b"caf\xe9",
        one("caf", "\u{20ac}"),
        b"caf\xe9",
        "f is encoded as latin-1, which has no '\u{20ac}'",
    );
    tools.edit(b"a", one("a", "a"), b"a", "this changes no byte of f");
    assert_eq!(names(tools.0.work()), ["f"]);
}

#[test]
fn edit_file_keeps_the_line_ends_and_blanks_of_lines_it_is_not_asked_to_change() {
    let tools = Tools::new();
    let check = |before: &str, edit: Value, after: &str, told: &str| {
        let told = if told.is_empty() { "changed f".to_owned() } else { format!("changed f; {told}") };
        tools.edit(before.as_bytes(), edit, after.as_bytes(), &told);
    };
    let ends = "line 1 matched except for line ends";
    // Line ends of both kinds.
    check("a\r\nb\nc\n", one("a\nb", "a\nB"), "a\r\nB\nc\n", ends);
    check("a\r\nb\nc\n", one("a\nb", "A\nb"), "A\r\nb\nc\n", ends);
    check("a\nb\r\nc\n", one("a\nb\nc", "a\nc"), "a\nc\n", ends);
    check("a\nb\r\nc\n", one("a\nb\n", "a\n"), "a\nc\n", ends);
    check("a\r\nb\nc\r\nd\r\n", one("b", "b\nx"), "a\r\nb\nx\nc\r\nd\r\n", "");
    check(
        "a\r\nb\nc\r\nd\r\n",
        one("c\nd", "c\nx\nd"),
        "a\r\nb\nc\r\nx\r\nd\r\n",
        "line 3 matched except for line ends",
    );
    check("a\r\nb\nc\r\n", one("a\nb\nc\n", "x\ny\nz\nw\n"), "x\r\ny\nz\r\nw\r\n", ends);
    check("a\nb\r\nc", one("c", "c\nd"), "a\nb\r\nc\r\nd", "");
    check("a\r\nb\nc", one("b\nc", "b\nx\nc"), "a\r\nb\nx\nc", "");
    // The first half of a line ending is not a line ending.
    check("a\r\nb\n", one("\nb", "\nc"), "a\r\nc\n", ends);
    check("a\r\n\r\nb\r\n", one("a\n\nb", "a\nb"), "a\r\nb\r\n", ends);
    check("a\r\nb\n", one("a\n", "x\n"), "x\r\nb\n", ends);
    tools.edit(
        b"a\r\nb\r\n",
        one("a\n\nb", "c"),
        b"a\r\nb\r\n",
        "the text is not in f; nearest is lines 1-2:\na\r\nb",
    );
    // The text that was read doesn't show which of the two is meant.
    tools.edit(
        b"a\r\nb\na\nb\n",
        one("a\nb", "c"),
        b"a\r\nb\na\nb\n",
        "the text occurs 2 times in f, it must occur once: it begins in lines 1 and 3; give more of what stands \
         around it, or replace_all",
    );
    let all = json!({"find": "a\nb", "replace": "a\nx\nb", "replace_all": true});
    let told = "2 places; lines 1 and 3 matched except for line ends";
    check("a\r\nb\na\nb\n", all, "a\r\nx\r\nb\na\nx\nb\n", told);
    // Explicit line endings are taken literally.
    check("a\r\nb\nc\n", one("a\r\nb\n", "a\r\nB\r\n"), "a\r\nB\r\nc\n", "");
    check("a\nb\n", one("a\r\nb", "a\r\nB"), "a\nB\n", ends);
    // Trailing blanks of lines that stay.
    let blanks = "lines 1-3 matched except for trailing blanks";
    check("a  \nb\t\nc \n", one("a\nb\nc\n", "a\nB\nc\n"), "a  \nB\nc \n", blanks);
    check("a  \r\nb\t\nc \r\n", one("a\nb\nc\n", "a\nc\n"), "a  \r\nc \r\n", blanks);
    check("a  \nb\t\nc \n", one("a\nb\nc", "a\nb\nnew\nc"), "a  \nb\t\nnew\nc \n", blanks);
    check(
        "\ta  \r\n\tb\n\tc \r\n",
        one("a\nb\nc\n", "a\n\tx\nc\n"),
        "\ta  \r\n\t\tx\n\tc \r\n",
        "lines 1-3 matched except for indentation",
    );
}

#[test]
fn edit_file_makes_several_edits_or_none() {
    let tools = Tools::new();
    let text = b"alpha\nbeta\ngamma\n";
    let both = json!([one("alpha", "A"), {"old": "A\nbeta", "new": "B"}]);
    tools.edit(text, both, b"B\ngamma\n", "changed f");
    let half = json!([one("alpha", "A"), one("delta sigma", "D")]);
    let told = "edit 2 of 2, with lines as the edits before it leave them: the text is not in f, nor anything like it\n\
                nothing was changed";
    tools.edit(text, half, text, told);
    let all = json!({"find": "a", "replace": "o", "replace_all": true});
    tools.edit(text, all, b"olpho\nbeto\ngommo\n", "changed f; 5 places");
    let mixed = json!({"find": "beta", "replace": "b", "edits": [{"find": "m", "replace": "n", "replace_all": true}]});
    tools.edit(text, mixed, b"alpha\nb\nganna\n", "changed f; edit 2: 2 places");
    tools.edit(text, json!({}), text, "nothing to do: give `find` and `replace`, or `edits`");
    tools.edit(
        text,
        json!([1]),
        text,
        "each of `edits` is an object with `find`, `replace` and perhaps `replace_all`",
    );
    tools.edit(text, json!([{"find": "a"}]), text, "an edit has two texts, `find` and `replace`");
    tools.edit(text, json!([one("", "x")]), text, "`find` is empty; write_file writes a whole file");
}

#[test]
fn edit_file_says_what_it_matched_loosely() {
    let tools = Tools::new();
    let check = |before: &str, find: &str, replace: &str, after: &str, told: &str| {
        let told = format!("changed f; {told}");
        tools.edit(before.as_bytes(), one(find, replace), after.as_bytes(), &told);
    };
    check("a\r\nb\r\nc", "a\nb", "x\ny", "x\r\ny\r\nc", "line 1 matched except for line ends");
    check("q\na  \nb\t\nc", "a\nb\n", "x\n", "q\nx\nc", "lines 2-3 matched except for trailing blanks");
    check("last", "last\n", "end\n", "end", "line 1 matched except for trailing blanks");
    check(
        "def f():\n\tif x:\n\t\treturn 1  \n\nend\n",
        "def f():\n    if x:\n        return 1",
        "def f():\n    if y:\n        return 2",
        "def f():\n\tif y:\n\t\treturn 2\n\nend\n",
        "lines 1-3 matched except for indentation",
    );
    check(
        "    a\n    b\n",
        "a\nb\n",
        "a\n  x\nb\n",
        "    a\n      x\n    b\n",
        "lines 1-2 matched except for indentation",
    );
}

#[test]
fn edit_file_refuses_what_is_ambiguous_by_line() {
    let tools = Tools::new();
    let check = |text: &str, find: &str, told: &str| {
        tools.edit(text.as_bytes(), one(find, "new"), text.as_bytes(), told);
    };
    check(
        "x\ny\nx\n",
        "x",
        "the text occurs 2 times in f, it must occur once: it begins in lines 1 and 3; give more of what stands \
         around it, or replace_all",
    );
    check(
        "  foo\nq\n foo\n",
        "   foo\n",
        "the text occurs 2 times in f except for white space: it begins in lines 1 and 3; give it exactly, with more \
         of what stands around it",
    );
    check("a\nbeta gamma\nc\n", "beta gama\nc", "the text is not in f; nearest is lines 2-3:\nbeta gamma\nc");
    check(
        "\ta\n  b\n",
        "a\nb\n",
        "the text stands in lines 1-2 of f with another indentation; give it as it stands there:\n\ta\n  b",
    );
}

#[cfg(unix)]
#[test]
fn files_keep_mode_and_links_stay_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let tools = Tools::new();
    tools.write("f", b"one\n");
    std::fs::set_permissions(tools.path("f"), PermissionsExt::from_mode(0o751)).unwrap();
    symlink("f", tools.path("link")).unwrap();
    for (tool, arguments, expected) in [
        ("edit_file", json!({"path": "link", "find": "one", "replace": "two"}), "two\n"),
        ("write_file", json!({"path": "link", "content": "three"}), "three\n"),
    ] {
        let result = tools.call(tool, &arguments);
        assert!(result.ok, "{result:?}");
        assert_eq!(tools.read("f"), expected.as_bytes());
        assert!(tools.path("link").is_symlink());
        assert_eq!(tools.path("f").metadata().unwrap().permissions().mode() & 0o7777, 0o751);
    }
    assert_eq!(
        tools.call("write_file", &json!({"path": ".", "content": ""})).complaint(),
        ". is no plain file"
    );
}

#[test]
fn write_file_writes_a_text_without_a_final_newline() {
    let tools = Tools::new();
    tools.call("write_file", &json!({"path": "a/f", "content": "a\r\nb", "newline": false}));
    assert_eq!(tools.read("a/f"), b"a\r\nb");
    tools.call("write_file", &json!({"path": "a/f", "content": "a\r\nb"}));
    assert_eq!(tools.read("a/f"), b"a\r\nb\n");
    tools.call("write_file", &json!({"path": "a/f", "content": ""}));
    assert_eq!(tools.read("a/f"), b"");
}

#[test]
fn read_file_says_what_a_binary_is() {
    let tools = Tools::new();
    let check = |bytes: &[u8], expected: &str| {
        tools.write("f", bytes);
        let result = tools.call("read_file", &json!({"path": "f"}));
        let text = if result.ok { result.output_text() } else { result.complaint() };
        assert_eq!(text.trim_end(), expected);
    };
    check(b"\x89PNG\r\n\x1a\n\0\0", "f is no text: a PNG image, 10 bytes");
    check(b"\x7fELF\0", "f is no text: a program or library, 5 bytes");
    check(b"%PDF-1.4\n", "f is no text: a PDF document, 9 bytes");
    check(b"a\0b", "f is no text: binary data, 3 bytes");
    check(b"caf\xe9\n", "caf\u{e9}");
    check(b"\xff\xfeh\0i\0", "hi");
    check(b"\xef\xbb\xbfmark\n", "mark");
    tools.write("f", &[b'x'; 3_000_000]);
    let text = tools.call("read_file", &json!({"path": "f"})).output_text().into_owned();
    assert!(text.contains("x\n[2000000 bytes are left out here]\nx"), "{}", text.len());
}

#[test]
fn escapes_of_a_program_do_not_reach_the_model() {
    let tools = Tools::new();
    let result = tools.call("shell", &json!({"command": r"printf '\033[31mred\033[0m\0end'"}));
    assert_eq!(result.text(99), "{\"ok\":true,\"output\":\"red\u{fffd}end\"}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_background_process_that_is_ended_is_told() {
    let tools = Tools::new();
    let result = tools.call("shell", &json!({"command": "sleep 98765 > /dev/null 2>&1 & echo on"}));
    assert_eq!(
        result.text(999),
        r#"{"ok":true,"output":"on","note":"this still ran when the command was over, and was ended with it: `sleep 98765`"}"#
    );
    // A process that exits by itself is not reported.
    let result = tools.call("shell", &json!({"command": "sleep 0.01 & echo on"}));
    assert_eq!(result.text(999), r#"{"ok":true,"output":"on"}"#);
}

#[test]
fn the_time_limit_of_a_shell_is_an_argument() {
    let tools = Tools::new();
    let check = |timeout: Value, expected: &str| {
        let result = tools.call("shell", &json!({"command": "sleep 5; echo late", "timeout": timeout}));
        assert_eq!(result.complaint(), expected);
    };
    check(json!(0.2), "timed out after 0.2 s");
    check(json!(0), "step `run`: `timeout` is a number of seconds above 0, at most a day, not 0");
    check(
        json!(1e9),
        "step `run`: `timeout` is a number of seconds above 0, at most a day, not 1000000000.0",
    );
    let quick = tools.call("shell", &json!({"command": "echo in time", "timeout": 5}));
    assert_eq!(quick.output, json!("in time"));
}

#[test]
fn the_time_limit_of_a_shell_is_within_that_of_the_npc() {
    let fixture = Fixture::new();
    let model = Scripted::default();
    let source = Single(&model);
    let session = Session::new(&source, &fixture.sandbox);
    let deadline = std::time::Instant::now().checked_add(std::time::Duration::from_millis(300));
    let caller = Caller { deadline, ..Caller::person(&session, &fixture.team) };
    let arguments = json!({"command": "sleep 5", "timeout": 60});
    let jinx = fixture.team.jinx("shell").unwrap();
    let result = crate::run::tool::call(&caller, jinx, arguments.as_object().unwrap(), "shell").unwrap();
    assert!(result.error.starts_with("timed out after 0."), "{result:?}");
}
