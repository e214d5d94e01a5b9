//! What Hugging Face's `apply_chat_template` adds to Jinja, and where it is more lenient than our
//! own templates may be.
//!
//! Source: `transformers/utils/chat_template_utils.py` (`_compile_jinja_template`).
//! Knows nothing of messages.

use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, filters};

use crate::chat::json::{Style, dumps_styled};
use crate::jinja;

/// Carries the text of `raise_exception` through minijinja's errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub String);

/// An environment in which chat templates render as they do in Python.
pub(super) fn hugging_face() -> Environment<'static> {
    let mut environment = jinja::environment();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    environment.add_filter("tojson", tojson);
    for name in ["length", "count"] {
        environment.add_filter(name, |value: &Value| match value.is_undefined() {
            true => Ok(0),
            false => filters::length(value),
        });
    }
    for (name, filter, zero) in [
        ("int", Value::from_function(filters::int), Value::from(0)),
        ("float", Value::from_function(filters::float), Value::from(0.0)),
    ] {
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            let args = match args.split_first() {
                Some((text, more)) if text.as_str().is_some() => {
                    let plain = Value::from(text.as_str().unwrap_or_default().trim().replace('_', ""));
                    std::iter::once(plain).chain(more.iter().cloned()).collect()
                }
                _ => args,
            };
            // Anything but a number yields the default.
            Ok::<_, Error>(filter.call(state, &args).unwrap_or_else(|_| zero.clone()))
        });
    }
    // In minijinja `none` is iterable.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    // In Python every value with a length and items is a sequence.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    environment
}

/// `strftime_now`, with the clock fixed at `now`.
pub(super) fn clock(now: DateTime) -> Value {
    Value::from_function(move |format: String| {
        // Limit field widths, so that a date can't fill the memory.
        if format.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 2) {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "strftime_now: a field is at most 99 characters wide",
            ));
        }
        jiff::fmt::strtime::format(&format, now)
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
    })
}

/// `json.dumps` under the names of Hugging Face's filter; unlike Jinja's own it doesn't escape
/// HTML.
#[expect(clippy::needless_pass_by_value, reason = "minijinja hands over keyword arguments by value")]
fn tojson(state: &mut State, value: &Value, options: Kwargs) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "tojson of an undefined value"));
    }
    let mut style = Style::default();
    if let Some(indent) = options.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none()) {
        style.indent = Some(match indent.as_usize() {
            Some(spaces) => " ".repeat(spaces.min(16)),
            None => indent.as_str().unwrap_or_default().chars().take(16).collect(),
        });
    }
    if let Some([item, key]) = options.get::<Option<Vec<String>>>("separators")?.as_deref() {
        style.item_separator = Some(item.clone());
        style.key_separator.clone_from(key);
    }
    style.ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;

    let between = [style.indent.as_ref(), style.item_separator.as_ref(), Some(&style.key_separator)];
    jinja::printable_apart(state, value, between.into_iter().flatten().map(String::len).sum())?;
    let failed = |error: serde_json::Error| Error::new(ErrorKind::BadSerialization, error.to_string());
    let text = if sort {
        let mut value = serde_json::to_value(value).map_err(failed)?;
        value.sort_all_objects();
        dumps_styled(&value, &style)
    } else {
        dumps_styled(value, &style)
    };
    text.map(Value::from).map_err(failed)
}

/// Replaces `{% generation %}` and `{% endgeneration %}`, which only mark the model's turns for
/// training, by an `if` that is always true.
/// This preserves whitespace control and line numbers.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        out.push_str(before);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        let name = tag.trim_start_matches("{%").trim_end_matches("%}");
        match name.trim_matches(['-', '+']).trim() {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_filters_are_python_s() {
        let environment = hugging_face();
        // The expectations come from Jinja2 3.1.6.
        let check = |source: &str, expected: &str| {
            let bounded = jinja::bounded(source, &jinja::MARKS).unwrap();
            assert_eq!(environment.render_str(&bounded, ()).unwrap(), expected, "{source}");
        };
        check("{{ '{\n'|indent(4, first=true) }}|", "    {\n|");
        check("{{ 'a\n\nb'|indent }}|{{ 'a\n\nb'|indent(2, true, true) }}", "a\n\n    b|  a\n  \n  b");
        check("{{ 'a\nb'|indent(width='> ') }}", "a\n> b");
        check("{{ [true, none, 1.0, 'a'] }}", "[True, None, 1.0, 'a']");
        check("{{ true }} {{ none }} {{ 2.0 }} {{ 1e-7|string }}", "True None 2.0 1e-07");
        check("{{ 'x' ~ true ~ none ~ 0.5 }}", "xTrueNone0.5");
        check("{{ 'abc'[::-1] }} {{ [1, 2, 3][1:] }} {{ 'abc'[-1] }}", "cba [2, 3] c");
        check("{{ {'a': 1, 'b': [true]} }}", "{'a': 1, 'b': [True]}");
        check("{{ '  x '.strip() }}{{ 'xxy'.lstrip('x') }}{{ 'a,b'.split(',') }}", "xy['a', 'b']");
        check("{{ 'ab'.upper() }}{{ 'AB'.lower() }}{{ 'a b'.title() }}", "ABabA B");
        check("{% set n = namespace(a=1) %}{% set n.a = n.a + 1 %}{{ n.a }}", "2");
        check("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13");
        check("{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1");
        check(
            "{{ none is iterable }} {{ 'a' is iterable }} {{ {} is mapping }} {{ 'a' is sequence }}",
            "False True True True",
        );
        check("{{ {'b': 1, 'a': 'é<'}|tojson }}", "{\"b\": 1, \"a\": \"é<\"}");
        check("{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}", "{\"a\":2,\"b\":1}");
        check("{{ 'é'|tojson(ensure_ascii=true) }}", "\"\\u00e9\"");
    }

    /// Where minijinja prints or permits something else, and why that is acceptable.
    const DIFFERENT: [(&str, &str); 3] = [
        ("{{ [1.0, 1e-7, 1e20] }}", "numbers within lists are printed as Rust does; no template prints such"),
        ("{{ lipsum is defined }}", "nobody's prompt has placeholder text"),
        ("{{ cycler('a', 'b').next() }}", "minijinja's takes a list"),
    ];

    #[test]
    fn expressions_are_jinja2_s() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/jinja/expressions.json");
        let cases: Vec<(String, Option<String>)> =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let environment = hugging_face();
        let mut wrong = Vec::new();
        for (source, expected) in &cases {
            let actual = jinja::bounded(source, &jinja::MARKS)
                .map_err(|refused| refused.to_string())
                .and_then(|bounded| environment.render_str(&bounded, ()).map_err(|error| error.to_string()));
            let known = DIFFERENT.iter().any(|(different, _)| different == source);
            if (actual.as_ref().ok() == expected.as_ref()) == known {
                wrong.push(format!("{source}: {actual:?}, not {expected:?}"));
            }
        }
        assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), cases.len());
    }

    #[test]
    fn generation_tags_become_conditions() {
        let check = |source: &str, expected: &str| assert_eq!(without_generation_tags(source), expected);
        check("a{%- generation -%}b{% endgeneration %}c", "a{%- if true -%}b{% endif %}c");
        check("{% if generation %}{% endif %}", "{% if generation %}{% endif %}");
        check("{% unclosed", "{% unclosed");
    }
}
