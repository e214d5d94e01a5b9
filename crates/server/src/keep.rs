//! How long unused models stay loaded: Ollama's `keep_alive`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use alara_harness::ModelSource;
use alara_harness::model::{Loaded, ModelSpec};
use serde_json::Value;
use tokio::sync::Notify;

use crate::time::rfc3339;

/// Default time for models other than the default one, as in Ollama.
const OTHERS: Duration = Duration::from_secs(300);
/// The expiry date of a model that stays until the server ends.
const NEVER: &str = "9999-12-31T23:59:59Z";

/// How long a model stays loaded after its last use; `None` for as long as the server runs.
pub type KeepAlive = Option<Duration>;

/// Parses `5m`, `1h30m` or a number of seconds; a negative value means forever, and 0 not at all.
pub fn keep_alive(text: &str) -> Option<KeepAlive> {
    if let Ok(seconds) = text.parse::<f64>() {
        return of_seconds(seconds);
    }
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let units =
            [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
        let (unit, worth) = units.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        seconds += number * worth;
    }
    of_seconds(if negative { -seconds } else { seconds })
}

/// Like [`keep_alive`], for a field of a request: a text or a number of seconds.
pub fn read(value: &Value) -> Option<KeepAlive> {
    match value {
        Value::String(text) => keep_alive(text),
        Value::Number(seconds) => of_seconds(seconds.as_f64()?),
        _ => None,
    }
}

fn of_seconds(seconds: f64) -> Option<KeepAlive> {
    match seconds {
        seconds if seconds.is_nan() => None,
        seconds if seconds < 0.0 => Some(None),
        // A longer time than a lifetime means forever.
        seconds => Some(Duration::try_from_secs_f64(seconds).ok()),
    }
}

/// Decides how long each model stays loaded.
pub struct Keep {
    default: ModelSpec,
    /// The setting for all models, unless a request overrides it.
    server: Option<KeepAlive>,
    uses: Mutex<HashMap<ModelSpec, Use>>,
    /// Signals that a model was used, or has to be unloaded.
    changed: Notify,
}

/// The use of a model.
#[derive(Clone, Copy, Default)]
struct Use {
    /// The setting in the last request.
    asked: Option<KeepAlive>,
    /// Number of running requests.
    running: usize,
    /// End of the last request.
    ended: Option<Instant>,
}

impl Keep {
    /// Creates the rules; `server` applies to all models unless a request overrides it; without it,
    /// the default model stays, and others are unloaded after five minutes.
    pub fn new(default: ModelSpec, server: Option<KeepAlive>) -> Self {
        Keep { default, server, uses: Mutex::default(), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ModelSpec, Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the model as used by a request until the result is dropped.
    /// `asked` is the request's setting for how long the model stays afterwards.
    pub fn using(&self, spec: &ModelSpec, asked: Option<KeepAlive>) -> Using<'_> {
        let mut uses = self.lock();
        let held = uses.entry(spec.clone()).or_default();
        (held.asked, held.running) = (asked, held.running + 1);
        Using { keep: self, spec: spec.clone() }
    }

    /// Checks all models again: one may have become idle.
    pub fn look(&self) {
        self.changed.notify_one();
    }

    /// Waits until a model was used, or has to be unloaded.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns when a loaded model expires; `None` for never.
    fn goes(&self, loaded: &Loaded) -> Option<Instant> {
        let uses = self.lock();
        let held = uses.get(&loaded.spec).copied().unwrap_or_default();
        let otherwise = if loaded.spec == self.default { None } else { Some(OTHERS) };
        let stays = held.asked.or(self.server).unwrap_or(otherwise)?;
        let used = match held.ended {
            _ if held.running > 0 => Instant::now(),
            ended => ended.map_or(loaded.used, |ended| ended.max(loaded.used)),
        };
        used.checked_add(stays)
    }

    /// Like [`goes`](Self::goes), as a date.
    pub fn goes_at(&self, loaded: &Loaded) -> String {
        let Some(at) = self.goes(loaded) else { return NEVER.to_owned() };
        let date = SystemTime::now() + at.saturating_duration_since(Instant::now());
        let date = date.duration_since(UNIX_EPOCH).unwrap_or_default();
        rfc3339(date.as_secs(), date.subsec_nanos())
    }

    /// Unloads expired models; returns the next expiry.
    /// Skips a model in use: it is checked again when its work ends.
    pub fn sweep(&self, models: &dyn ModelSource) -> Option<Instant> {
        let now = Instant::now();
        let mut next: Option<Instant> = None;
        for loaded in models.loaded() {
            let running = self.lock().get(&loaded.spec).is_some_and(|held| held.running > 0);
            let Some(at) = self.goes(&loaded).filter(|_| !running && !loaded.busy) else { continue };
            if at <= now {
                models.unload(&loaded.spec);
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        next
    }
}

/// Marks a model as in use.
pub struct Using<'a> {
    keep: &'a Keep,
    spec: ModelSpec,
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.keep.lock().get_mut(&self.spec) {
            (held.running, held.ended) = (held.running.saturating_sub(1), Some(Instant::now()));
        }
        self.keep.look();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alara_harness::model::{Candidate, Models, Scripted};
    use serde_json::json;

    use super::*;

    #[test]
    fn durations() {
        let check = |value: Value, expected: Option<KeepAlive>| {
            assert_eq!(read(&value), expected, "{value}");
        };
        let seconds = |seconds: f64| Some(Some(Duration::from_secs_f64(seconds)));
        check(json!("5m"), seconds(300.0));
        check(json!("1h30m"), seconds(5400.0));
        check(json!("1.5s"), seconds(1.5));
        check(json!("100ms"), seconds(0.1));
        check(json!("+2us"), seconds(2e-6));
        check(json!(300), seconds(300.0));
        check(json!("300"), seconds(300.0));
        check(json!(0.5), seconds(0.5));
        check(json!(0), seconds(0.0));
        check(json!("0"), seconds(0.0));
        check(json!("0m"), seconds(0.0));
        check(json!(-1), Some(None));
        check(json!("-1"), Some(None));
        check(json!("-1m"), Some(None));
        check(json!(1e300), Some(None));
        for wrong in [
            json!(""),
            json!("m"),
            json!("5 m"),
            json!("5x"),
            json!("1h30"),
            json!("-"),
            json!("nan"),
            json!(true),
            json!([]),
        ] {
            check(wrong, None);
        }
    }

    #[test]
    fn those_whose_time_is_over_go() {
        let models = Models::new(None, |_| {
            Ok(Candidate { bytes: 1, load: Box::new(|| Ok(Arc::new(Scripted::default()))) })
        });
        let (default, other) = (ModelSpec::named("default"), ModelSpec::named("other"));
        let load = || [&default, &other].map(|spec| drop(models.get(spec).unwrap()));
        let loaded = || {
            let loaded = models.loaded().into_iter();
            loaded.map(|loaded| loaded.spec.to_string()).collect::<Vec<_>>().join(" ")
        };
        let stays = |keep: &Keep, spec: &ModelSpec| {
            let loaded = models.loaded();
            let loaded = loaded.iter().find(|loaded| loaded.spec == *spec).unwrap();
            keep.goes(loaded).map(|at| at.saturating_duration_since(Instant::now()).as_secs_f64().round())
        };
        load();
        let keep = Keep::new(default.clone(), None);
        assert_eq!((stays(&keep, &default), stays(&keep, &other)), (None, Some(300.0)));
        let next = keep.sweep(&models).unwrap();
        assert!(next > Instant::now() && loaded() == "default other");
        // A request's setting holds until the next request.
        drop(keep.using(&other, Some(Some(Duration::from_secs(60)))));
        assert_eq!(stays(&keep, &other), Some(60.0));
        drop(keep.using(&other, Some(None)));
        assert_eq!((stays(&keep, &other), keep.sweep(&models)), (None, None));
        drop(keep.using(&other, None));
        assert_eq!(stays(&keep, &other), Some(300.0));
        // A model in use stays.
        let using = keep.using(&default, Some(Some(Duration::ZERO)));
        let held = models.get(&other).unwrap();
        drop(keep.using(&other, Some(Some(Duration::ZERO))));
        assert!(keep.sweep(&models).is_none() && loaded() == "default other");
        drop(using);
        keep.sweep(&models);
        assert_eq!(loaded(), "other");
        drop(held);
        keep.sweep(&models);
        assert_eq!(loaded(), "");
        // The server's setting overrides the rule for the default model.
        load();
        let keep = Keep::new(default.clone(), Some(Some(Duration::ZERO)));
        keep.sweep(&models);
        assert_eq!(loaded(), "");
        load();
        let keep = Keep::new(default.clone(), Some(None));
        assert!(keep.sweep(&models).is_none() && stays(&keep, &other).is_none());
    }
}
