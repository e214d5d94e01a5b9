//! The addresses of endpoints, and their keys.

use std::fmt;
use std::str::FromStr;

use alara_team::model_spec::is_loopback;
use ureq::http::Uri;

use super::EndpointError;

/// The address of an endpoint, and the name of a model there: `https://host/v1#model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address that `/chat/completions` is appended to, without a slash at its end.
    pub(super) base: String,
    /// The model; `None` for the only one that the endpoint serves.
    pub model: Option<String>,
    host: String,
}

impl Address {
    /// Whether `name` is an address rather than the name of a model.
    pub fn is_meant_by(name: &str) -> bool {
        ["http://", "https://"]
            .iter()
            .any(|scheme| name.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
    }

    /// The host's name, without a port.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host and the port, as written.
    pub fn authority(&self) -> &str {
        let rest = self.base.split_once("://").map_or(self.base.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Whether the connection is private: encrypted, or within this machine.
    pub(crate) fn is_private(&self) -> bool {
        self.base.starts_with("https:") || self.is_loopback()
    }

    /// Whether this is the local machine, so that no data leaves it.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}

impl FromStr for Address {
    type Err = EndpointError;

    /// Parses `URL` or `URL#MODEL`.
    /// A bare host gets the usual path `/v1`; a whole `…/chat/completions` is accepted as well.
    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (url, model) = text.split_once('#').map_or((text, None), |(url, model)| (url, Some(model)));
        let refuse =
            |reason: &str| EndpointError::Address { address: url.to_owned(), reason: reason.to_owned() };
        let uri: Uri = url.trim().parse().map_err(|error| refuse(&format!("{error}")))?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(refuse("it has no http:// or https://"));
        };
        if authority.as_str().contains('@') {
            // Not shown: it may be a password.
            let reason = "a user or password has no place in it".to_owned();
            return Err(EndpointError::Address { address: authority.host().to_owned(), reason });
        }
        if uri.query().is_some() {
            return Err(refuse("it has a query"));
        }
        let path = uri.path().trim_end_matches('/');
        let path = path.strip_suffix("/chat/completions").unwrap_or(path);
        let address = Address {
            base: format!("{scheme}://{authority}{}", if path.is_empty() { "/v1" } else { path }),
            model: model.map(str::trim).filter(|model| !model.is_empty()).map(str::to_owned),
            host: authority.host().to_owned(),
        };
        match scheme {
            "https" | "http" => Ok(address),
            _ => Err(refuse("it is neither http nor https")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)?;
        self.model.as_ref().map_or(Ok(()), |model| write!(f, "#{model}"))
    }
}

/// The API key of an endpoint.
/// It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A key, without surrounding whitespace; `None` if nothing is left.
    ///
    /// # Errors
    /// [`EndpointError::Key`] if it can't be sent in a header.
    pub fn new(key: &str) -> Result<Option<Self>, EndpointError> {
        let key = key.trim();
        match key.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok((!key.is_empty()).then(|| Key(key.to_owned()))),
            false => Err(EndpointError::Key),
        }
    }

    pub(super) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// A server's message without the key: some repeat what was sent.
    pub(super) fn hidden_in(&self, message: &str) -> String {
        message.replace(&self.0, "***")
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |text: &str, base: &str, model: Option<&str>| {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.base.as_str(), address.model.as_deref()), (base, model), "{text}");
        };
        let local = "http://127.0.0.1:8080/v1";
        check("http://127.0.0.1:8080/v1#qwen3:4b", local, Some("qwen3:4b"));
        check("http://127.0.0.1:8080", local, None);
        check("http://127.0.0.1:8080/#", local, None);
        check("http://127.0.0.1:8080/v1/", local, None);
        check("http://127.0.0.1:8080/v1/chat/completions#a", local, Some("a"));
        check("http://localhost:11434", "http://localhost:11434/v1", None);
        check("http://[::1]:80/v1", "http://[::1]:80/v1", None);
        check("HTTPS://host/api/v1#a/b", "https://host/api/v1", Some("a/b"));
        check("https://host/v1beta/openai", "https://host/v1beta/openai", None);
    }

    #[test]
    fn who_may_be_told_a_key() {
        let check = |text: &str, expected| {
            assert_eq!(text.parse::<Address>().unwrap().is_private(), expected, "{text}");
        };
        check("https://host/v1", true);
        check("http://127.0.0.1:1", true);
        check("http://localhost:1/v1", true);
        check("http://192.168.0.2:11434", false);
        check("http://127.0.0.1.example.org/v1", false);
    }

    #[test]
    fn what_is_no_address() {
        let check = |text: &str, words: &str| {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        };
        check("ftp://127.0.0.1/v1", "neither http nor https");
        check("127.0.0.1:8080", "has no http:// or https://");
        check("https://", "is no address");
        check("https://host/v1?key=1", "it has a query");
        let error = "https://me:hunter2@host/v1".parse::<Address>().unwrap_err().to_string();
        assert!(error.contains("no place") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn keys_are_not_shown() {
        let key = Key::new(" hunter2\n").unwrap().unwrap();
        assert_eq!((key.header().as_str(), format!("{key:?}").as_str()), ("Bearer hunter2", "Key(***)"));
        assert_eq!(key.hidden_in("no such key: hunter2."), "no such key: ***.");
        assert_eq!(Key::new(" ").unwrap(), None);
        assert!(matches!(Key::new("a\r\nb"), Err(EndpointError::Key)));
    }
}
