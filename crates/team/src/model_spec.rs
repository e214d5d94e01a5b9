//! The model that an NPC or a team asks for.

use std::fmt;
use std::net::IpAddr;

use serde::Serialize;

/// A model as a file names it.
/// Missing fields are inherited: from the team, then from the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct ModelSpec {
    /// Its name: in the catalog, of a file, or at an endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The address of an OpenAI-compatible endpoint.
    /// `None` for a local model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
    /// The environment variable that holds the key; the key itself is never stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
}

impl ModelSpec {
    /// A model by its name.
    pub fn named(name: impl Into<String>) -> Self {
        ModelSpec { model: Some(name.into()), ..ModelSpec::default() }
    }

    /// Whether every field is empty.
    pub fn is_empty(&self) -> bool {
        *self == ModelSpec::default()
    }

    /// This spec with missing fields taken from `other`; an endpoint's fields belong together.
    #[must_use]
    pub fn or(self, other: &ModelSpec) -> ModelSpec {
        let local = self.api_url.is_none() && self.provider.is_none();
        ModelSpec {
            model: self.model.or_else(|| other.model.clone()),
            provider: if local { other.provider.clone() } else { self.provider },
            api_url: if local { other.api_url.clone() } else { self.api_url },
            // A key goes only to the address that it was configured for.
            api_key_env: self.api_key_env.or_else(|| other.api_key_env.clone().filter(|_| local)),
        }
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.api_url, &self.model) {
            (Some(url), Some(model)) => write!(f, "{url}#{model}"),
            (Some(name), None) | (None, Some(name)) => f.write_str(name),
            (None, None) => f.write_str("the model that ships"),
        }
    }
}

/// Whether a host is the local machine.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    let named = host.eq_ignore_ascii_case("localhost");
    named || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_inherited_with_its_address_only() {
        let spec = |provider: Option<&str>, url: Option<&str>, key: Option<&str>| ModelSpec {
            model: None,
            provider: provider.map(str::to_owned),
            api_url: url.map(str::to_owned),
            api_key_env: key.map(str::to_owned),
        };
        let above = spec(Some("p"), Some("https://above"), Some("KEY"));
        let check =
            |own: ModelSpec, expected: ModelSpec| assert_eq!(own.clone().or(&above), expected, "{own:?}");
        check(ModelSpec::default(), above.clone());
        check(spec(None, None, Some("OWN")), spec(Some("p"), Some("https://above"), Some("OWN")));
        check(spec(None, Some("https://else"), None), spec(None, Some("https://else"), None));
        check(spec(Some("q"), None, None), spec(Some("q"), None, None));
    }
}
