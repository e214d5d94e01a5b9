//! The model that a file asks for: `model`, `provider`, `api_url`, `api_key`, and the team's
//! `providers`.

use crate::fields::Fields;
use crate::model_spec::ModelSpec;
use crate::types::Limits;
use crate::yaml::Node;

/// An entry of a team's `providers`.
#[derive(Clone, Debug)]
pub struct Provider {
    name: String,
    spec: ModelSpec,
}

/// The model that a file asks for.
/// A `provider` with the name of an entry of `providers` uses that entry, and the file's own keys
/// override it.
pub fn spec(fields: &mut Fields, providers: &[Provider]) -> ModelSpec {
    let model = fields.text(&["model"]);
    let provider = fields.text(&["provider"]);
    let (api_url, api_key_env) = endpoint(fields);
    let named = provider.as_ref().and_then(|name| providers.iter().find(|other| other.name == *name));
    match named.map(|provider| provider.spec.clone()) {
        Some(spec) => ModelSpec {
            model: model.or(spec.model),
            provider: spec.provider,
            // A key is sent only to the address that it was configured for.
            api_key_env: api_key_env.or(spec.api_key_env.filter(|_| api_url.is_none())),
            api_url: api_url.or(spec.api_url),
        },
        None => ModelSpec { model, provider, api_url, api_key_env },
    }
}

/// The entries of `providers`: `{name, provider_type, model, api_url, api_key}`.
pub fn providers(fields: &mut Fields) -> Vec<Provider> {
    let Some(entry) = fields.entry(&["providers"]) else { return Vec::new() };
    let Some(items) = entry.value.items() else {
        fields.error(
            entry.value.location,
            format!("`providers` must be a list, not {}", entry.value.describe()),
        );
        return Vec::new();
    };
    let source = fields.source();
    let mut found: Vec<Provider> = Vec::new();
    for item in items {
        let Some(mut fields) = Fields::new(source, item, fields.diagnostics()) else { continue };
        let name = fields.text(&["name"]);
        let model = fields.text(&["model"]);
        let provider = fields.text(&["provider_type"]);
        let (api_url, api_key_env) = endpoint(&mut fields);
        fields.unknown();
        match name {
            None => fields.error(item.location, "a provider needs a name"),
            Some(name) if found.iter().any(|other| other.name == name) => {
                fields
                    .error(item.location, format!("there are two providers `{name}`; the first one counts"));
            }
            Some(name) => {
                let provider = provider.or_else(|| Some(name.clone()));
                let spec = ModelSpec { model, provider, api_url, api_key_env };
                found.push(Provider { name, spec });
            }
        }
    }
    found
}

/// The address, and the variable with the key.
fn endpoint(fields: &mut Fields) -> (Option<String>, Option<String>) {
    let location = fields.location("api_url");
    let api_url = fields.text(&["api_url"]);
    if api_url.as_ref().is_some_and(|url| url.contains('$')) {
        fields.warning(location, "variables in an address are not replaced: write the address itself");
    }
    let location = fields.location("api_key");
    let key = fields.text(&["api_key"]);
    let variable = key.as_deref().and_then(variable);
    if key.is_some() && variable.is_none() {
        // The key itself is never printed.
        fields.error(location, "a key in a file is not used: name the environment variable that holds it, as in `api_key: $NAME`");
    }
    (api_url, variable)
}

/// The variable's name in `$NAME` or `${NAME}`.
pub fn variable(text: &str) -> Option<String> {
    let name = text.strip_prefix('$')?;
    let name = name.strip_prefix('{').map_or(Some(name), |rest| rest.strip_suffix('}'))?;
    let mut characters = name.chars();
    let good = characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|other| other.is_ascii_alphanumeric() || other == '_');
    good.then(|| name.to_owned())
}

/// Reads `limits`; missing ones keep the values of `base`.
pub fn limits(fields: &mut Fields, base: Limits) -> Limits {
    let mut limits = base;
    let Some(entry) = fields.entry(&["limits"]) else { return limits };
    let source = fields.source();
    let Some(mut fields) = Fields::new(source, &entry.value, fields.diagnostics()) else { return limits };
    let mut read = |key: &'static str, set: &mut dyn FnMut(u64)| {
        let Some(entry) = fields.entry(&[key]) else { return };
        match number(&entry.value) {
            Some(number) => set(number),
            None => fields.error(entry.value.location, format!("`{key}` must be a whole number above 0")),
        }
    };
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    read("turns", &mut |number| limits.turns = size(number));
    read("turn_tokens", &mut |number| limits.turn_tokens = size(number));
    read("reasoning_tokens", &mut |number| limits.reasoning_tokens = Some(size(number)));
    read("turn_calls", &mut |number| limits.turn_calls = size(number));
    read("repeated_calls", &mut |number| limits.repeated_calls = size(number));
    read("tool_output_bytes", &mut |number| limits.tool_output_bytes = size(number));
    read("seconds", &mut |number| limits.seconds = Some(number));
    read("depth", &mut |number| limits.depth = size(number));
    read("window", &mut |number| limits.window = Some(size(number)));
    fields.unknown();
    limits
}

fn number(node: &Node) -> Option<u64> {
    node.value().as_u64().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables() {
        let check = |text, expected: Option<&str>| assert_eq!(variable(text).as_deref(), expected, "{text}");
        check("$OPENAI_API_KEY", Some("OPENAI_API_KEY"));
        check("${KEY_2}", Some("KEY_2"));
        check("sk-12345", None);
        check("$", None);
        check("${A", None);
        check("$A B", None);
        check("$2A", None);
    }
}
