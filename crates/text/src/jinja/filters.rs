//! Jinja2's filters: those that minijinja lacks or implements differently, those that make large
//! values of small ones, and all others with their results charged.

use minijinja::value::{Kwargs, Rest, Value, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, State, filters as own};
use minijinja_contrib::filters as contrib;

use super::budget::{ITEM, charge, charge_new, failed, printed};
use super::format;

/// The widest indentation.
const WIDEST: usize = 256;

pub(super) fn add_to(environment: &mut Environment<'static>) {
    // The results of these are at most a few times as large as their inputs.
    let counted: [(&'static str, Value); 38] = [
        ("safe", Value::from_function(own::safe)),
        ("escape", Value::from_function(own::escape)),
        ("e", Value::from_function(own::escape)),
        ("lower", Value::from_function(own::lower)),
        ("upper", Value::from_function(own::upper)),
        ("capitalize", Value::from_function(own::capitalize)),
        ("dictsort", Value::from_function(own::dictsort)),
        ("items", Value::from_function(own::items)),
        ("reverse", Value::from_function(own::reverse)),
        ("trim", Value::from_function(own::trim)),
        ("split", Value::from_function(own::split)),
        ("lines", Value::from_function(own::lines)),
        ("default", Value::from_function(own::default)),
        ("d", Value::from_function(own::default)),
        ("round", Value::from_function(own::round)),
        ("abs", Value::from_function(own::abs)),
        ("attr", Value::from_function(own::attr)),
        ("first", Value::from_function(own::first)),
        ("last", Value::from_function(own::last)),
        ("min", Value::from_function(own::min)),
        ("max", Value::from_function(own::max)),
        ("sort", Value::from_function(own::sort)),
        ("list", Value::from_function(own::list)),
        ("bool", Value::from_function(own::bool)),
        ("sum", Value::from_function(own::sum)),
        ("select", Value::from_function(own::select)),
        ("reject", Value::from_function(own::reject)),
        ("selectattr", Value::from_function(own::selectattr)),
        ("rejectattr", Value::from_function(own::rejectattr)),
        ("map", Value::from_function(own::map)),
        ("groupby", Value::from_function(own::groupby)),
        ("unique", Value::from_function(own::unique)),
        ("chain", Value::from_function(own::chain)),
        ("zip", Value::from_function(own::zip)),
        ("filesizeformat", Value::from_function(contrib::filesizeformat)),
        ("striptags", Value::from_function(contrib::striptags)),
        ("pluralize", Value::from_function(contrib::pluralize)),
        ("tojson", Value::from_function(tojson)),
    ];
    for (name, filter) in counted {
        // A non-string argument is printed, and the result may consist of it.
        let prints = matches!(
            name,
            "escape" | "e" | "lower" | "upper" | "capitalize" | "trim" | "striptags" | "tojson"
        );
        environment.add_filter(name, move |state: &mut State, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            if prints && let Some(value) = args.first() {
                printed(state, value)?;
            }
            let value = filter.call(state, &args)?;
            charge_new(state, value)
        });
    }
    environment.add_filter("string", |state: &mut State, value: &Value| match value.as_str() {
        Some(_) => Ok(value.clone()),
        None => super::text(state, value).map(Value::from),
    });
    environment.add_filter("pprint", |state: &mut State, value: &Value| {
        printed(state, value)?;
        Ok::<_, Error>(format!("{value:?}"))
    });
    environment.add_filter("replace", replace);
    environment.add_filter("join", join);
    environment.add_filter("indent", indent);
    environment.add_filter("batch", batch);
    environment.add_filter("slice", slice);
    environment.add_filter("title", |state: &mut State, value: &Value| {
        let text = super::text(state, value)?;
        Ok::<_, Error>(titled(&text, |c| "-({[<".contains(c) || c.is_whitespace()))
    });
    environment.add_filter("format", |state: &mut State, value: &Value, args: Rest<ValueOrKwargs>| {
        let text = value.as_str().ok_or_else(|| failed("format: the value is no text"))?;
        format::percent(state, text, &mut args.into_values())
    });
    environment.add_filter("center", |state: &mut State, value: &Value, width: Option<Value>| {
        let text = super::text(state, value)?;
        super::methods::call(state, &text.into(), "center", &[width.unwrap_or(Value::from(80))])
    });
    environment.add_filter("wordcount", |state: &mut State, value: &Value| {
        let text = super::text(state, value)?;
        let words = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        Ok::<_, Error>(words.filter(|word| !word.is_empty()).count())
    });
    environment.add_filter("truncate", truncate);
    environment.add_filter("urlencode", urlencode);
}

/// Replaces parts of a text.
pub(super) fn replaced(
    state: &mut State,
    text: &str,
    old: &str,
    new: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    // A negative count means no limit.
    let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let times = text.matches(old).take(most).count();
    charge(state, text.len().saturating_add(times.saturating_mul(new.len())))?;
    Ok(text.replacen(old, new, most))
}

fn replace(
    state: &mut State,
    value: &Value,
    old: &Value,
    new: &Value,
    args: Rest<ValueOrKwargs>,
) -> Result<String, Error> {
    let [count] = named(args, ["count"])?;
    let [text, old, new] = [value, old, new].map(|value| super::text(state, value));
    replaced(state, &text?, &old?, &new?, count.as_i64())
}

/// The arguments of these names, each given by position or by name; missing arguments are
/// undefined.
fn named<const N: usize>(args: Rest<ValueOrKwargs>, names: [&str; N]) -> Result<[Value; N], Error> {
    let args = args.into_values();
    let (places, options): (Rest<Value>, Kwargs) = from_args(&args)?;
    if places.len() > N {
        return Err(minijinja::ErrorKind::TooManyArguments.into());
    }
    let mut values = [const { Value::UNDEFINED }; N];
    for (index, name) in names.into_iter().enumerate() {
        values[index] = match places.get(index) {
            Some(value) => value.clone(),
            None => options.get::<Option<Value>>(name)?.unwrap_or_default(),
        };
    }
    options.assert_all_used()?;
    Ok(values)
}

/// Joins the items of a list as one text.
pub(super) fn joined(state: &mut State, list: &Value, between: &str) -> Result<String, Error> {
    let mut text = String::new();
    for (index, item) in list.try_iter()?.enumerate() {
        if index > 0 {
            charge(state, between.len())?;
            text += between;
        }
        text += &super::text(state, &item)?;
    }
    Ok(text)
}

fn join(state: &mut State, list: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let [between, attribute] = named(args, ["d", "attribute"])?;
    let between = super::text(state, &between)?;
    if attribute.is_undefined() || attribute.is_none() {
        return joined(state, list, &between);
    }
    let named = Kwargs::from_iter([("attribute", attribute)]);
    let list = state.apply_filter("map", &[list.clone(), named.into()])?;
    joined(state, &list, &between)
}

/// Jinja2's `tojson`, with a bound for the width of its indentation.
fn tojson(value: &Value, indent: Option<Value>, args: Kwargs) -> Result<Value, Error> {
    let width = indent.clone().or_else(|| args.peek("indent").ok());
    if width.and_then(|width| width.as_usize()).is_some_and(|width| width > WIDEST) {
        return Err(failed(format!("tojson: the indent is a number up to {WIDEST}")));
    }
    own::tojson(value, indent, args)
}

/// Jinja2's `indent`, which unlike minijinja's keeps a trailing line end, and accepts a string for
/// `width`.
fn indent(state: &mut State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let [width, first, blank] = named(args, ["width", "first", "blank"])?;
    let indentation = match (width.as_str(), width.as_usize()) {
        _ if width.is_undefined() => " ".repeat(4),
        (Some(text), _) => text.to_owned(),
        (None, Some(spaces)) if spaces <= WIDEST => " ".repeat(spaces),
        _ => return Err(failed(format!("indent: the width is a text or a number up to {WIDEST}"))),
    };
    let text = super::text(state, value)?.replace("\r\n", "\n");
    let lines = text.matches('\n').count() + 1;
    charge(state, text.len().saturating_add(lines.saturating_mul(indentation.len())))?;
    let mut out = String::with_capacity(text.len());
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let wanted = if index == 0 { first.is_true() } else { !line.is_empty() || blank.is_true() };
        if wanted {
            out.push_str(&indentation);
        }
        out.push_str(line);
    }
    Ok(out)
}

fn batch(state: &mut State, list: &Value, size: usize, with: Option<Value>) -> Result<Value, Error> {
    let items: Vec<Value> = list.try_iter()?.collect();
    if size == 0 {
        return Err(failed("batch: the size is at least 1"));
    }
    let with = with.filter(|with| !with.is_none());
    let missing = if with.is_some() { (size - items.len() % size) % size } else { 0 };
    charge(state, items.len().saturating_add(missing).saturating_mul(ITEM))?;
    let filled: Vec<Value> = items.into_iter().chain(with.into_iter().cycle().take(missing)).collect();
    Ok(filled.chunks(size).map(|row| Value::from(row.to_vec())).collect())
}

fn slice(state: &mut State, list: &Value, count: usize, with: Option<&Value>) -> Result<Value, Error> {
    let items: Vec<Value> = list.try_iter()?.collect();
    if count == 0 {
        return Err(failed("slice: the count is at least 1"));
    }
    charge(state, items.len().saturating_add(count).saturating_mul(ITEM))?;
    let (each, more) = (items.len() / count, items.len() % count);
    let mut rest = items.as_slice();
    let columns = (0..count).map(|index| {
        let (column, after) = rest.split_at(each + usize::from(index < more));
        rest = after;
        let filler = with.filter(|with| !with.is_none() && index >= more).cloned();
        column.iter().cloned().chain(filler).collect::<Value>()
    });
    Ok(columns.collect())
}

/// Capitalizes the words of a text; for the filter, `begins` decides after which characters a word
/// begins, in addition to the start of the text.
/// If it never does, a word is a run of letters, as for the method.
pub(super) fn titled(text: &str, begins: impl Fn(char) -> bool) -> String {
    let filter = begins(' ');
    let mut out = String::with_capacity(text.len());
    let mut start = true;
    for character in text.chars() {
        match start {
            true => out.extend(character.to_uppercase()),
            false => out.extend(character.to_lowercase()),
        }
        start = if filter { begins(character) } else { !character.is_alphabetic() };
    }
    out
}

fn truncate(state: &mut State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let [length, killwords, end, leeway] = named(args, ["length", "killwords", "end", "leeway"])?;
    let (length, leeway) = (length.as_usize().unwrap_or(255), leeway.as_usize().unwrap_or(5));
    let end = if end.is_undefined() { "...".to_owned() } else { super::text(state, &end)? };
    let text = super::text(state, value)?;
    let last = end.chars().count();
    if length < last {
        return Err(failed(format!("truncate: the length is at least that of the end, {last}")));
    }
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let kept: String = text.chars().take(length - last).collect();
    let kept = match killwords.is_true() {
        true => kept.as_str(),
        false => kept.rsplit_once(' ').map_or(kept.as_str(), |(kept, _)| kept),
    };
    Ok(format!("{kept}{end}"))
}

/// Percent-encodes a text, keeping slashes, or a list of pairs as a query.
fn urlencode(state: &mut State, value: &Value) -> Result<String, Error> {
    let quoted = |text: &str, query: bool| {
        let mut out = String::new();
        for byte in text.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => out.push(byte.into()),
                b'/' if !query => out.push('/'),
                b' ' if query => out.push('+'),
                _ => out += &format!("%{byte:02X}"),
            }
        }
        out
    };
    let bytes = printed(state, value)?.bytes;
    charge(state, bytes.saturating_mul(3))?;
    let pairs: Vec<(Value, Value)> = match value.kind() {
        ValueKind::Map => value
            .try_iter()?
            .map(|key| Ok((key.clone(), value.get_item(&key)?)))
            .collect::<Result<_, Error>>()?,
        ValueKind::Seq | ValueKind::Iterable => {
            let item = |pair: &Value, at: usize| pair.get_item(&Value::from(at));
            value
                .try_iter()?
                .map(|pair| Ok((item(&pair, 0)?, item(&pair, 1)?)))
                .collect::<Result<_, Error>>()?
        }
        _ => return Ok(quoted(&super::text(state, value)?, false)),
    };
    let mut parts = Vec::new();
    for (key, value) in pairs {
        parts.push(format!(
            "{}={}",
            quoted(&super::text(state, &key)?, true),
            quoted(&super::text(state, &value)?, true)
        ));
    }
    Ok(parts.join("&"))
}
