use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use alara_text::gguf::Gguf;
use serde_json::json;

use super::*;

static ALWAYS: Until = Until { cancelled: None, deadline: None };
const NOON: DateTime = jiff::civil::datetime(2026, 7, 1, 12, 0, 0, 0);

fn segment(name: &str, text: &str) -> Segment {
    Segment { name: name.into(), text: text.into() }
}

fn tool(name: &str) -> Tool {
    let parameters =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    Tool { name: name.into(), description: format!("Does {name}."), parameters, strict: false }
}

/// A conversation with skills A and `second`, and with tools.
fn request(second: &str, messages: Vec<Message>) -> Request {
    Request {
        system: vec![
            segment("directive", "You are terse. Answer in one line"),
            segment("skill:a", "# A\n\nHow one does a: carefully, and then `again`"),
            segment("skill:b", second),
        ],
        tools: vec![tool("read_file"), tool("write_file")],
        messages,
        ..Request::default()
    }
}

/// Possible continuations of the static part.
fn tails() -> Vec<Vec<Message>> {
    let text = [" led by a space", "\n\nby lines", "'s <|im_end|>"];
    let mut tails: Vec<_> = text.map(|text| vec![Message::user(text)]).into();
    tails.push(vec![Message::user("one"), Message::assistant("two", Vec::new()), Message::user("three")]);
    tails
}

fn templates() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders = vec![root.join("models/templates")];
    folders.extend(crate::absent::shared("fixtures/chat/templates"));
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jinja"));
    files.sort();
    files
}

fn tokenizers() -> Vec<(&'static str, Tokenizer)> {
    ["qwen3-exact", "gemma3-exact"]
        .into_iter()
        .map(|case| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/arch");
            let gguf = Gguf::open(&root.join(case).join("model.gguf")).unwrap();
            (case, crate::architecture::tokenizer(&gguf).unwrap())
        })
        .collect()
}

/// The tokens of the prompt for `request`, and its prefix information.
fn place(by: Renderer, request: &Request) -> Option<(Vec<u32>, Prefix)> {
    let (prompt, tokens) = by.prompt(request).ok()?;
    let prefix = Segments::default().prefix(by, request, &prompt, &tokens);
    Some((tokens, prefix))
}

/// Templates that print static text at a position that depends on the conversation: the tools, or
/// everything, before the last question.
const MOVING: [&str; 3] =
    ["Mistral-Small-3.2-24B-Instruct-2506", "mistral-small", "mistralai-Mistral-Nemo-Instruct-2407"];

#[test]
fn ids_of_segments_never_depend_on_what_follows() {
    let tokenizers = tokenizers();
    let (mut held, mut refused, mut moving, mut seen) = (0, 0, BTreeSet::new(), Vec::new());
    for file in templates() {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(&file).unwrap();
        for (vocabulary, tokenizer) in &tokenizers {
            let control: Vec<String> = tokenizer.control_texts().map(String::from).collect();
            let Ok(template) = ChatTemplate::new(&source, "<s>", "</s>") else { continue };
            let by = Renderer {
                template: &template,
                format: Format::generic(),
                tokenizer,
                control: &control,
                now: NOON,
                until: &ALWAYS,
            };
            let b = "# B\n\nHow one does b";
            let placed: Vec<_> =
                tails().into_iter().filter_map(|tail| place(by, &request(b, tail))).collect();
            let Some((tokens, prefix)) = placed.first() else {
                refused += 1;
                continue;
            };
            let pinned = |tokens: &[u32], prefix: &Prefix| tokenizer.decode(&tokens[..prefix.pinned], true);
            for (other, its) in &placed {
                // Conversations that are rendered differently from the beginning have less in
                // common, but never other ids.
                let both = its.pinned.min(prefix.pinned);
                assert_eq!(tokens[..both], other[..both], "{name} {vocabulary}");
                let text = pinned(other, its);
                if !["How one does a", "How one does b", "read_file", "write_file"]
                    .iter()
                    .all(|part| text.contains(part))
                {
                    moving.insert(name.clone());
                }
            }
            // With another second skill, the text before it has the same ids and the same end.
            let c = "Something else: another skill";
            let (other, its) = place(by, &request(c, tails().remove(0))).unwrap();
            let shared = common(tokens, &other);
            let ends = |prefix: &Prefix| -> Vec<usize> {
                prefix.boundaries.iter().copied().filter(|end| *end <= shared).collect()
            };
            assert_eq!(ends(prefix), ends(&its), "{name} {vocabulary}");
            // Of the common segment, everything up to what its last letters may merge with is
            // before its end.
            let before = ends(prefix).last().copied().unwrap_or(0);
            assert!(
                tokenizer.decode(&tokens[..before], true).contains("carefully, and then"),
                "{name} {vocabulary}: {:?} of {:?}",
                tokenizer.decode(&tokens[..before], true),
                tokenizer.decode(tokens, true),
            );
            held += 1;
        }
        seen.push(name);
    }
    println!("{held} pairs of template and vocabulary hold, {refused} refuse the conversation");
    let expected: BTreeSet<String> = MOVING.map(String::from).into();
    let expected = expected.into_iter().filter(|name| seen.contains(name)).collect();
    assert_eq!(moving, expected);
    assert!(held > 10);
}

#[test]
fn what_was_found_is_found_again_at_once() {
    let (_, tokenizer) = tokenizers().remove(0);
    let source = "<|im_start|>system\n{{ messages[0].content }}{{ strftime_now('%d') }}{% for m in messages[1:] %}{{ m.content }}{% endfor %}\n\
         {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let template = ChatTemplate::new(source, "", "").unwrap();
    let by = Renderer {
        template: &template,
        format: Format::generic(),
        tokenizer: &tokenizer,
        control: &[],
        now: NOON,
        until: &ALWAYS,
    };
    let segments = Segments::default();
    let find = |by: Renderer, text: &str| {
        let request = Request { tools: Vec::new(), ..request("# B", vec![Message::user(text)]) };
        let (prompt, tokens) = by.prompt(&request).unwrap();
        let prefix = segments.prefix(by, &request, &prompt, &tokens);
        let known = segments.known.lock().unwrap().len();
        (prefix, tokens, known)
    };
    let (prefix, tokens, known) = find(by, "one");
    // Directive, A, B with the day, and the turn.
    assert_eq!((prefix.boundaries.len(), known), (5, 1), "{prefix:?}");
    let turn = tokenizer.encode("<|im_start|>assistant\n", true).unwrap();
    assert_eq!(prefix.boundaries[4], tokens.len() - turn.len());
    assert_eq!(prefix.boundaries[3], prefix.pinned);
    let (again, _, known) = find(by, "another question");
    assert_eq!((again.pinned, known), (prefix.pinned, 1));
    // Another day.
    let tomorrow = Renderer { now: jiff::civil::datetime(2026, 7, 2, 12, 0, 0, 0), ..by };
    let (_, _, known) = find(tomorrow, "one");
    assert_eq!(known, 2);
}
