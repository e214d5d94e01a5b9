//! The next prompt repeats what a model generated exactly as it was generated, so that its tokens
//! are reused.
//! For each family, the rendered history begins with the prompt and the generated text.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::{ChatTemplate, Format, Parsed, Parser, Turn};
use crate::request::{Message, Request, Segment, Tool, ToolCall};

/// How a family writes a turn, written by hand from the data that its models were trained on.
struct Family {
    /// Files in `models/templates`, and stems of those in the chat fixtures.
    templates: &'static [&'static str],
    format: &'static str,
    /// Before and after reasoning.
    reasoning: Option<(&'static str, &'static str)>,
    /// Whether turns without reasoning are those with reasoning switched off.
    switched: bool,
    /// Before and after text that calls follow.
    before_calls: (&'static str, &'static str),
    /// Before and after an answer.
    answer: (&'static str, &'static str),
    /// Before all calls, between two and after all.
    section: (&'static str, &'static str, &'static str),
    /// The calls of [`calls`].
    calls: [&'static str; 2],
    /// Cases whose history is printed differently, and why.
    except: &'static [(Case, &'static str)],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    Call,
    TextAndCall,
    TwoCalls,
    ReasoningAndCall,
    ReasoningTextAndCall,
    Answer,
    ReasoningAndAnswer,
}

use Case::*;

impl Case {
    const ALL: [Case; 7] =
        [Call, TextAndCall, TwoCalls, ReasoningAndCall, ReasoningTextAndCall, Answer, ReasoningAndAnswer];

    fn reasons(self) -> bool {
        [ReasoningAndCall, ReasoningTextAndCall, ReasoningAndAnswer].contains(&self)
    }

    fn text(self) -> &'static str {
        match self {
            TextAndCall | ReasoningTextAndCall => "Let me look.",
            Answer | ReasoningAndAnswer => "It is\n\n42.",
            Call | TwoCalls | ReasoningAndCall => "",
        }
    }

    fn calls(self) -> usize {
        match self {
            Call | TextAndCall | ReasoningAndCall | ReasoningTextAndCall => 1,
            TwoCalls => 2,
            Answer | ReasoningAndAnswer => 0,
        }
    }
}

const THOUGHT: &str = "Hm.\n\nYes.";

const THINK: Option<(&str, &str)> = Some(("<think>\n", "\n</think>\n\n"));

const JSON: [&str; 2] = [
    r#"{"city": "Zürich", "days": 2}"#,
    r#"{"query": "a \"b\"\n</c>", "options": {"tags": ["x", 1.5, null], "deep": true}}"#,
];

const HERMES: Family = Family {
    templates: &[],
    format: "hermes",
    reasoning: None,
    switched: false,
    before_calls: ("", "\n"),
    answer: ("", "<|im_end|>"),
    section: ("", "\n", "<|im_end|>"),
    calls: [
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 2}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a \\\"b\\\"\\n</c>\", \
         \"options\": {\"tags\": [\"x\", 1.5, null], \"deep\": true}}}\n</tool_call>",
    ],
    except: &[],
};

const OLD: &str = "reasoning before the user's latest words is left out";
const OFF: &str = "the empty block that switches reasoning off is left out";
const NO_REASONING: &str = "the template prints no reasoning";
const TEXT_OR_CALLS: &str = "the template prints a turn's calls or its text, not both";
const ONE_CALL: &str = "a turn has one call; what is printed for two are two turns";
const LAST_USER: &str = "the template prints the tools before the user's latest words";
const APPENDS: &str = "the template changes a list, which Hugging Face's sandbox does not let it do either";

const FAMILIES: &[Family] = &[
    Family {
        templates: &["qwen3.jinja", "Qwen-Qwen3-0.6B"],
        reasoning: THINK,
        except: &[(ReasoningAndAnswer, OLD)],
        ..HERMES
    },
    Family {
        templates: &["qwen3.jinja", "Qwen-Qwen3-0.6B"],
        reasoning: THINK,
        switched: true,
        except: &[(Call, OFF), (TextAndCall, OFF), (TwoCalls, OFF), (Answer, OFF), (ReasoningAndAnswer, OLD)],
        ..HERMES
    },
    Family { templates: &["Qwen-Qwen2.5-7B-Instruct"], ..HERMES },
    Family {
        templates: &["NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use"],
        except: &[(TextAndCall, TEXT_OR_CALLS)],
        ..HERMES
    },
    Family {
        templates: &["ibm-granite-granite-4.0"],
        answer: ("", "<|end_of_text|>"),
        section: ("", "\n", "<|end_of_text|>"),
        ..HERMES
    },
    // The generic format.
    Family {
        templates: &["HuggingFaceTB-SmolLM3-3B"],
        format: "generic",
        reasoning: THINK,
        except: &[
            (ReasoningAndCall, NO_REASONING),
            (ReasoningTextAndCall, NO_REASONING),
            (ReasoningAndAnswer, NO_REASONING),
        ],
        ..HERMES
    },
    Family {
        templates: &["gemma3.jinja", "google-gemma-2-2b-it"],
        format: "generic",
        answer: ("", "<end_of_turn>"),
        section: ("", "\n", "<end_of_turn>"),
        ..HERMES
    },
    Family { templates: &["phi4.jinja"], format: "generic", ..HERMES },
    Family {
        templates: &["microsoft-Phi-3.5-mini-instruct"],
        format: "generic",
        answer: ("", "<|end|>"),
        section: ("", "\n", "<|end|>"),
        ..HERMES
    },
    Family {
        templates: &["olmo2.jinja"],
        format: "generic",
        answer: ("", "<|endoftext|>"),
        section: ("", "\n", "<|endoftext|>"),
        ..HERMES
    },
    Family {
        templates: &["qwen35.jinja", "Qwen3.5-4B"],
        format: "qwen-xml",
        reasoning: Some(("", "\n</think>\n\n")),
        switched: true,
        before_calls: ("", "\n\n"),
        calls: [
            "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n2\n</parameter>\n\
             </function>\n</tool_call>",
            "<tool_call>\n<function=search>\n<parameter=query>\na \"b\"\n</c>\n</parameter>\n<parameter=options>\n\
             {\"tags\": [\"x\", 1.5, null], \"deep\": true}\n</parameter>\n</function>\n</tool_call>",
        ],
        except: &[(Answer, OFF), (ReasoningAndAnswer, OLD)],
        ..HERMES
    },
    Family {
        templates: &["glm4.jinja", "GLM-4.7-Flash"],
        format: "glm",
        reasoning: Some(("", "</think>")),
        switched: true,
        before_calls: ("", ""),
        answer: ("", "<|user|>"),
        section: ("", "", "<|observation|>"),
        calls: [
            "<tool_call>weather<arg_key>city</arg_key><arg_value>Zürich</arg_value><arg_key>days</arg_key>\
             <arg_value>2</arg_value></tool_call>",
            "<tool_call>search<arg_key>query</arg_key><arg_value>a \"b\"\n</c></arg_value><arg_key>options</arg_key>\
             <arg_value>{\"tags\": [\"x\", 1.5, null], \"deep\": true}</arg_value></tool_call>",
        ],
        except: &[(ReasoningAndAnswer, OLD)],
    },
    Family {
        templates: &["gpt-oss.jinja", "openai-gpt-oss-120b"],
        format: "harmony",
        reasoning: Some(("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")),
        switched: false,
        before_calls: ("<|channel|>commentary<|message|>", "<|end|><|start|>assistant"),
        // The turn ends with <|return|>, which a history prints as <|end|>.
        answer: ("<|channel|>final<|message|>", "<|end|>"),
        section: ("", "", "<|call|>"),
        calls: [
            " to=functions.weather<|channel|>commentary json<|message|>{\"city\": \"Zürich\", \"days\": 2}",
            " to=functions.search<|channel|>commentary json<|message|>{\"query\": \"a \\\"b\\\"\\n</c>\", \
             \"options\": {\"tags\": [\"x\", 1.5, null], \"deep\": true}}",
        ],
        except: &[
            (TextAndCall, "the template prints as a thought what is said before a call"),
            (TwoCalls, ONE_CALL),
            (ReasoningTextAndCall, "a turn that calls has thoughts or text, and thoughts are kept"),
            (ReasoningAndAnswer, OLD),
        ],
    },
    Family {
        templates: &["ministral3.jinja", "mistralai-Ministral-3-14B-Reasoning-2512"],
        format: "mistral",
        reasoning: Some(("[THINK]", "[/THINK]")),
        before_calls: ("", ""),
        answer: ("", "</s>"),
        section: ("", "", "</s>"),
        calls: [
            "[TOOL_CALLS]weather[ARGS]{\"city\": \"Zürich\", \"days\": 2}",
            "[TOOL_CALLS]search[ARGS]{\"query\": \"a \\\"b\\\"\\n</c>\", \"options\": {\"tags\": [\"x\", 1.5, null], \
             \"deep\": true}}",
        ],
        ..HERMES
    },
    Family {
        templates: &["mistral-small.jinja", "Mistral-Small-3.2-24B-Instruct-2506"],
        format: "mistral-id",
        before_calls: ("", ""),
        answer: ("", "</s>"),
        section: ("", "", "</s>"),
        calls: [
            "[TOOL_CALLS]weather[CALL_ID]abcdefgh1[ARGS]{\"city\": \"Zürich\", \"days\": 2}",
            "[TOOL_CALLS]search[CALL_ID]abcdefgh2[ARGS]{\"query\": \"a \\\"b\\\"\\n</c>\", \
             \"options\": {\"tags\": [\"x\", 1.5, null], \"deep\": true}}",
        ],
        except: &[(TextAndCall, TEXT_OR_CALLS), (Answer, LAST_USER)],
        ..HERMES
    },
    Family {
        templates: &["llama3.jinja", "meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct"],
        format: "llama3",
        before_calls: ("", ""),
        answer: ("", "<|eot_id|>"),
        section: ("", "; ", "<|eot_id|>"),
        calls: [
            "{\"name\": \"weather\", \"parameters\": {\"city\": \"Zürich\", \"days\": 2}}",
            "{\"name\": \"search\", \"parameters\": {\"query\": \"a \\\"b\\\"\\n</c>\", \
             \"options\": {\"tags\": [\"x\", 1.5, null], \"deep\": true}}}",
        ],
        except: &[(TextAndCall, TEXT_OR_CALLS), (TwoCalls, ONE_CALL)],
        ..HERMES
    },
    Family {
        templates: &["deepseek-ai-DeepSeek-V3.1"],
        format: "deepseek",
        before_calls: ("", ""),
        answer: ("", "<｜end▁of▁sentence｜>"),
        section: ("<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>"),
        calls: [
            "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Zürich\", \"days\": 2}<｜tool▁call▁end｜>",
            "<｜tool▁call▁begin｜>search<｜tool▁sep｜>{\"query\": \"a \\\"b\\\"\\n</c>\", \
             \"options\": {\"tags\": [\"x\", 1.5, null], \"deep\": true}}<｜tool▁call▁end｜>",
        ],
        ..HERMES
    },
    Family {
        templates: &["LFM2-8B-A1B"],
        format: "lfm2",
        section: ("<|tool_call_start|>[", ", ", "]<|tool_call_end|><|im_end|>"),
        calls: [
            "weather(city=\"Zürich\", days=2)",
            "search(query=\"a \\\"b\\\"\\n</c>\", options={\"tags\": [\"x\", 1.5, null], \"deep\": true})",
        ],
        ..HERMES
    },
    Family { templates: &["moonshotai-Kimi-K2"], ..KIMI },
    Family {
        templates: &["Kimi-K2-Instruct"],
        except: &[(Call, APPENDS), (TextAndCall, APPENDS), (TwoCalls, APPENDS)],
        ..KIMI
    },
];

const KIMI: Family = Family {
    format: "kimi",
    before_calls: ("", ""),
    section: ("<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|><|im_end|>"),
    calls: [
        "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Zürich\", \"days\": 2}\
         <|tool_call_end|>",
        "<|tool_call_begin|>functions.search:1<|tool_call_argument_begin|>{\"query\": \"a \\\"b\\\"\\n</c>\", \
         \"options\": {\"tags\": [\"x\", 1.5, null], \"deep\": true}}<|tool_call_end|>",
    ],
    ..HERMES
};

/// Tokens that end a turn; the parser never gets them.
const ENDS: [&str; 11] = [
    "<|im_end|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end|>",
    "<|user|>",
    "<|observation|>",
    "<|call|>",
    "</s>",
    "<|eot_id|>",
    "<｜end▁of▁sentence｜>",
];

fn calls() -> [ToolCall; 2] {
    let call = |id: &str, name: &str, json: &str| ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: serde_json::from_str(json).unwrap(),
    };
    [call("abcdefgh1", "weather", JSON[0]), call("abcdefgh2", "search", JSON[1])]
}

fn tool(name: &str) -> Tool {
    Tool {
        name: name.into(),
        description: "Helps".into(),
        parameters: json!({"type": "object", "properties": {}}),
        strict: false,
    }
}

fn template(name: &str) -> Option<ChatTemplate> {
    let path = match name.strip_suffix(".jinja") {
        Some(_) => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/templates")).join(name),
        None => crate::absent::shared(&format!("fixtures/chat/templates/{name}.jinja"))?,
    };
    let source = std::fs::read_to_string(path).unwrap();
    let variables: Map<String, Value> = Map::from_iter([("reasoning".to_owned(), true.into())]);
    Some(ChatTemplate::new(&source, "<s>", "</s>").unwrap().with_variables(variables))
}

/// The text that the family's models generate for `case`.
fn generated(family: &Family, case: Case) -> String {
    let (before, after) = family.reasoning.unwrap_or_default();
    let reasoning = if case.reasons() { format!("{before}{THOUGHT}{after}") } else { String::new() };
    let around = |(before, after): (&str, &str)| match case.text() {
        "" => String::new(),
        text => format!("{before}{text}{after}"),
    };
    if case.calls() == 0 {
        return reasoning + &around(family.answer);
    }
    let (open, between, close) = family.section;
    reasoning + &around(family.before_calls) + open + &family.calls[..case.calls()].join(between) + close
}

const NOON: jiff::civil::DateTime = jiff::civil::datetime(2026, 7, 1, 12, 0, 0, 0);

fn request(family: &Family, case: Case) -> Request {
    Request {
        system: vec![Segment { name: "directive".into(), text: "Be brief.".into() }],
        messages: vec![Message::user("hi")],
        tools: vec![tool("weather"), tool("search")],
        thinking: (family.switched && !case.reasons()).then_some(false),
        parallel_tool_calls: true,
        ..Request::default()
    }
}

fn made(case: Case) -> Vec<ToolCall> {
    calls()[..case.calls()].to_vec()
}

fn spoken(case: Case) -> Message {
    Message {
        reasoning_content: case.reasons().then(|| THOUGHT.to_owned()),
        ..Message::assistant(case.text(), made(case))
    }
}

/// The message that the parser makes of the generated text, without its end; ids are kept.
fn parsed(template: &ChatTemplate, format: &'static Format, family: &Family, case: Case) -> Message {
    let request = request(family, case);
    let prompt = template.render(&request, &[], NOON).unwrap();
    let mut parser = Parser::new(&Turn::new(format, &request, template.source(), &prompt.generation_prompt));
    let generated = generated(family, case);
    let text = ENDS.iter().find_map(|end| generated.strip_suffix(end)).unwrap();
    let mut pieces = parser.push(text);
    pieces.extend(parser.finish());
    let (mut message, mut reasoning, mut ids) =
        (Message::assistant("", Vec::new()), String::new(), calls().into_iter());
    for piece in pieces {
        match piece {
            Parsed::Text(text) => message.content += &text,
            Parsed::Reasoning(text) => reasoning += &text,
            Parsed::ToolCall { name, arguments, .. } => {
                let id = ids.next().unwrap().id;
                message.tool_calls.push(ToolCall { id, name, arguments });
            }
            Parsed::Delta { .. } => {}
            Parsed::Incomplete { .. } => panic!("{generated} is complete"),
        }
    }
    message.reasoning_content = Some(reasoning).filter(|reasoning| !reasoning.is_empty());
    message
}

/// The position at which the history of `case` departs from its expected beginning, if it does.
fn difference(template: &ChatTemplate, family: &Family, case: Case) -> Option<String> {
    let mut request = request(family, case);
    let prompt = template.render(&request, &[], NOON).unwrap().text;
    request.messages.push(spoken(case));
    request.messages.extend(made(case).iter().map(|call| Message::tool_result(call, "done")));
    if case.calls() == 0 {
        request.messages.push(Message::user("go on"));
    }
    let history = match template.render(&request, &[], NOON) {
        Ok(history) => history.text,
        Err(error) => return Some(error.to_string()),
    };
    let expected = prompt + &generated(family, case);
    if history.starts_with(&expected) {
        return None;
    }
    let at = history.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
    let from = history.floor_char_boundary(at.saturating_sub(30));
    Some(format!("generated {:?}, printed {:?}", &expected[from..], &history[from..]))
}

#[test]
fn history_begins_with_what_was_generated() {
    let mut wrong = Vec::new();
    for family in FAMILIES {
        let format = Format::from_name(family.format).unwrap();
        for name in family.templates {
            let Some(template) = template(name) else { continue };
            let detected = template.format();
            assert_eq!(detected.map(|format| format.name), Some(family.format), "{name}");
            let template = template.with_calls(format);
            for case in Case::ALL.into_iter().filter(|case| !case.reasons() || family.reasoning.is_some()) {
                let except = family.except.iter().find(|(except, _)| *except == case);
                let unlike = |(_, why): &&(Case, &str)| [ONE_CALL, TEXT_OR_CALLS].contains(why);
                if except.filter(unlike).is_none() {
                    let rendered = format.render_calls(&made(case)).unwrap();
                    let generated = generated(family, case);
                    assert!(
                        case.calls() == 0 || generated.contains(&rendered),
                        "{name} {case:?}: {rendered}"
                    );
                    assert_eq!(parsed(&template, format, family, case), spoken(case), "{name} {case:?}");
                }
                match (difference(&template, family, case), except) {
                    (None, None) => {}
                    (Some(_), Some((_, why))) => println!("exception {name} {case:?}: {why}"),
                    (None, Some(_)) => wrong.push(format!("{name} {case:?}: is no exception")),
                    (Some(difference), None) => wrong.push(format!("{name} {case:?}: {difference}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
