use serde_json::json;

use super::*;

fn tools() -> Vec<Tool> {
    let parameters =
        json!({"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]});
    vec![Tool { name: "shell".into(), description: String::new(), parameters, strict: false }]
}

const CALL: &str = "```json\n{\"name\": \"shell\", \"arguments\": {\"command\": \"ls\"}}\n```";

/// A short form of the output before the end and at it, with pieces of `size` characters.
fn told(text: &str, size: usize) -> (String, String) {
    let mut recovery = Recovery::new(tools(), true, 3);
    let mut before = Vec::new();
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(size) {
        before.extend(recovery.push(Event::Text { text: piece.iter().collect() }));
    }
    let (events, ending) = recovery.end(Finish::Stop, Usage::default(), true);
    let ended = match &ending {
        Ending::Over => String::new(),
        Ending::Again(usage) => format!("again {:?}", usage.recovered.as_ref().map(|found| found.again)),
    };
    (short(before), short(events) + &ended)
}

fn short(events: Vec<Event>) -> String {
    let mut out = String::new();
    for event in events {
        match event {
            Event::Text { text } => out += &text,
            Event::ToolCall(call) => out += &format!("[{} {}]", call.id, json!(call.arguments)),
            Event::Done { finish, usage } => out += &format!("{finish:?} {}", usage.recovered.is_some()),
            _ => {}
        }
    }
    out
}

#[test]
fn a_call_is_held_back_and_told_as_a_call() {
    for size in [1, 2, 3, 7, 1000] {
        let made = "[call_3 {\"command\":\"ls\"}]ToolCalls true".to_owned();
        assert_eq!(told(CALL, size), (String::new(), made.clone()), "{size}");
        let (before, after) = told(&format!("I look at it:\n\n{CALL}\n"), size);
        assert_eq!(
            format!("{before}|{after}").replace('\n', "").replace('|', ""),
            format!("I look at it:{made}"),
            "{size}"
        );
    }
}

#[test]
fn text_is_passed_on_as_soon_as_it_can_be_no_call() {
    for text in ["It is done.", "Use `shell` so:\n```bash\nls\n```\nand so on", "{1, 2} is a set\nof numbers"]
    {
        for size in [1, 4, 1000] {
            let (before, after) = told(text, size);
            assert_eq!(format!("{before}{after}"), format!("{text}Stop false"), "{size}");
        }
    }
    // A paragraph after an object is not held back.
    let (before, _) = told(&format!("{{\"a\": 1}}\n{}", "word ".repeat(200)), 5);
    assert!(before.len() > 900, "{}", before.len());
}

#[test]
fn what_can_not_be_made_is_asked_for_again() {
    let broken = "{\"name\": \"shell\", \"arguments\": {\"command\": \"grep \"a\" b\"}}";
    assert_eq!(told(broken, 3), (String::new(), "again Some(true)".to_owned()));
    // Without a second attempt no text is lost.
    let mut recovery = Recovery::new(tools(), true, 0);
    assert!(recovery.push(Event::Text { text: broken.into() }).is_empty());
    let (events, _) = recovery.end(Finish::Stop, Usage::default(), false);
    assert_eq!(short(events), format!("{broken}Stop false"));
}

#[test]
fn a_turn_that_calls_by_itself_is_left_alone() {
    let mut recovery = Recovery::new(tools(), true, 0);
    assert!(recovery.push(Event::Text { text: "[".into() }).is_empty());
    let call = ToolCall { id: "x".into(), name: "shell".into(), arguments: Default::default() };
    let passed = recovery.push(Event::ToolCall(call));
    assert_eq!(short(passed), "[[x {}]");
    let (events, _) = recovery.end(Finish::ToolCalls, Usage::default(), true);
    assert_eq!(short(events), "ToolCalls false");
}

#[test]
fn one_call_where_the_request_asks_for_one() {
    let mut recovery = Recovery::new(tools(), false, 0);
    drop(recovery.push(Event::Text { text: format!("{CALL}\n{}", CALL.replace("ls", "df")) }));
    let (events, _) = recovery.end(Finish::Stop, Usage::default(), true);
    assert_eq!(short(events), "[call_0 {\"command\":\"ls\"}]ToolCalls true");
}
