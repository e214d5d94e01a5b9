//! What Hugging Face's `apply_chat_template` adds to Jinja, and where minijinja differs from Jinja2.
//!
//! Source: `transformers/utils/chat_template_utils.py` (`_compile_jinja_template`). Knows nothing of messages.

use jiff::civil::DateTime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use crate::chat::json::{Style, dumps_styled, float};

/// Carries the text of `raise_exception` through minijinja's errors.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub String);

/// How deep macros may call each other, in minijinja's units (a macro costs a few): deeper than any schema, and far from
/// the end of a thread's stack even in a debug build.
const RECURSION: usize = 200;

/// The widest indentation: more than anybody reads.
const WIDEST: usize = 256;

/// An environment in which chat templates render as they do in Python.
pub(super) fn hugging_face() -> Environment<'static> {
    let mut environment = Environment::new();
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_recursion_limit(RECURSION);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
    });
    environment.add_filter("tojson", tojson);
    environment.add_filter("indent", indent);
    // minijinja calls none iterable.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    // Python's are all that have a length and items.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    // Errors would take copies of all variables along.
    environment.set_debug(false);
    environment.set_formatter(|out, state, value| match as_float(value) {
        Some(value) => out.write_str(&float(value)).map_err(Error::from),
        None => minijinja::escape_formatter(out, state, value),
    });
    environment.add_filter("string", |value: Value| match as_float(&value) {
        Some(value) => Value::from(float(value)),
        None if value.kind() == ValueKind::String => value,
        None => Value::from(value.to_string()),
    });
    environment
}

/// The value of a float, which Python prints in its own way.
fn as_float(value: &Value) -> Option<f64> {
    let is_float = value.kind() == ValueKind::Number && !value.is_integer();
    is_float.then(|| f64::try_from(value.clone()).ok()).flatten()
}

/// `strftime_now`, for a clock that stands at `now`.
pub(super) fn clock(now: DateTime) -> Value {
    Value::from_function(move |format: String| {
        jiff::fmt::strtime::format(&format, now)
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
    })
}

/// `json.dumps` under the names of Hugging Face's filter; unlike Jinja's own it escapes nothing for HTML.
#[expect(clippy::needless_pass_by_value, reason = "minijinja hands over keyword arguments by value")]
fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(Error::new(ErrorKind::UndefinedError, "tojson of an undefined value"));
    }
    let mut style = Style::default();
    if let Some(indent) = options.get::<Option<Value>>("indent")?.filter(|indent| !indent.is_none()) {
        style.indent = Some(match indent.as_usize() {
            Some(spaces) => " ".repeat(spaces.min(16)),
            None => indent.to_string(),
        });
    }
    if let Some([item, key]) = options.get::<Option<Vec<String>>>("separators")?.as_deref() {
        style.item_separator = Some(item.clone());
        style.key_separator.clone_from(key);
    }
    style.ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;

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

/// Jinja2's `indent`, which unlike minijinja's keeps the line end at the end, and takes a text for `width`. The width is
/// bounded, since the template may come from anywhere.
#[expect(clippy::needless_pass_by_value, reason = "minijinja hands over keyword arguments by value")]
fn indent(
    text: String,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let width = width.map_or_else(|| options.get::<Option<Value>>("width"), |width| Ok(Some(width)))?;
    let first = first.map_or_else(|| options.get::<Option<bool>>("first"), |first| Ok(Some(first)))?;
    let blank = blank.map_or_else(|| options.get::<Option<bool>>("blank"), |blank| Ok(Some(blank)))?;
    options.assert_all_used()?;
    let indentation = match &width {
        None => " ".repeat(4),
        Some(width) => match (width.as_str(), width.as_usize()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(spaces)) if spaces <= WIDEST => " ".repeat(spaces),
            _ => {
                let message = format!("indent: the width is a text or a number up to {WIDEST}");
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
        },
    };
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.replace("\r\n", "\n").split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let wanted =
            if index == 0 { first.unwrap_or(false) } else { !line.is_empty() || blank.unwrap_or(false) };
        if wanted {
            out.push_str(&indentation);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// Replaces `{% generation %}` and `{% endgeneration %}`, which only mark the model's turns for training, by an `if`
/// that is always true: whitespace control and line numbers stay as they are.
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
        // Expectations come from Jinja2 3.1.6.
        let check = |source: &str, expected: &str| {
            assert_eq!(environment.render_str(source, ()).unwrap(), expected, "{source}");
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

    #[test]
    fn generation_tags_become_conditions() {
        let check = |source: &str, expected: &str| assert_eq!(without_generation_tags(source), expected);
        check("a{%- generation -%}b{% endgeneration %}c", "a{%- if true -%}b{% endif %}c");
        check("{% if generation %}{% endif %}", "{% if generation %}{% endif %}");
        check("{% unclosed", "{% unclosed");
    }
}
