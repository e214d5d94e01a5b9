//! `POST /api/pull`: downloads a model, and streams the progress as JSON, one object per line.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use alara_harness::error::chain;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::catalog;
use crate::dispatch::{Shared, team};
use crate::refusal::Refusal;
use crate::response::json_of;
use crate::{Pull, body};

/// Minimum time between two lines about the same file.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of lines that may wait for the client before the download pauses.
const LINES: usize = 64;
/// Number of digest digits in a line's status, as in Ollama.
const DIGITS: usize = 12;
/// Seconds after which another download may be finished.
const LATER: u64 = 60;

/// The lines of a download, up to the last one.
type Lines = mpsc::Receiver<Result<Value, Refusal>>;

/// Does nothing for a served model; downloads any other, if downloads are allowed.
pub async fn pull(State(shared): State<Arc<Shared>>, request: Request) -> Result<Response, Refusal> {
    let mut fields = body::fields(&shared, request).await?;
    let name = catalog::meant(&shared, &mut fields)?;
    let stream = fields.flag("stream")?.unwrap_or(true);
    let mut lines = match is_served(&shared, &name).await? {
        true => {
            let (sender, receiver) = mpsc::channel(LINES);
            // Both fit into the channel.
            let _ = sender.try_send(Ok(json!({"status": "pulling manifest"})));
            let _ = sender.try_send(Ok(json!({"status": "success"})));
            receiver
        }
        false if shared.allow_pull => download(&shared, name)?,
        false => {
            return Err(Refusal::forbidden(format!(
                "{name} is not served here, and this server downloads nothing (--allow-pull); get it by `alara models \
                 pull {name}` and serve it by `-m {name}`"
            )));
        }
    };
    if !stream {
        let mut last = json!({"status": "success"});
        while let Some(line) = lines.recv().await {
            last = line?;
        }
        return Ok(json_of(&last));
    }
    // Until the download has begun, it can still be refused with a status.
    let first = lines.recv().await.unwrap_or_else(|| Err(Refusal::silent()))?;
    let mut response = Response::new(Body::new(Told { first: Some(first), lines }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Ok(response)
}

/// Whether the model exists.
/// If any name means a model, this applies only if no download is possible.
async fn is_served(shared: &Arc<Shared>, name: &str) -> Result<bool, Refusal> {
    let team = team(shared).await?;
    let known = shared.find(name).is_some() || team.npcs.iter().any(|npc| npc.name == name);
    Ok(known || (shared.any_model && !shared.allow_pull))
}

/// Downloads on a separate thread.
/// Stops if the lines are dropped, as when the client disconnects.
fn download(shared: &Arc<Shared>, name: String) -> Result<Lines, Refusal> {
    let Ok(held) = shared.pulls.clone().try_acquire_owned() else {
        let message = "another model is being downloaded; try again later";
        return Err(Refusal::new(503, "server_error", message).coded("overloaded").again(LATER));
    };
    let (sender, receiver) = mpsc::channel(LINES);
    let shared = shared.clone();
    tokio::task::spawn_blocking(move || {
        let tell = |line: Value| sender.blocking_send(Ok(line)).is_ok();
        let (mut begun, mut told) = (false, None);
        let pulled = shared.workplace.pull(&name, &mut |pull| {
            let heard = begun || tell(json!({"status": "pulling manifest"}));
            begun = true;
            heard && line(&pull, Instant::now(), &mut told).is_none_or(tell)
        });
        let end = match pulled {
            Ok(()) => {
                let heard = begun || tell(json!({"status": "pulling manifest"}));
                if heard {
                    tell(json!({"status": "writing manifest"}));
                }
                Ok(json!({"status": "success"}))
            }
            Err(error) => Err(Refusal::new(502, "server_error", chain(&error)).coded("not_pulled")),
        };
        // Released before the end is sent, since the client may then request the next download.
        drop(held);
        // The client may have left.
        let _ = sender.blocking_send(end);
    });
    Ok(receiver)
}

/// Returns the line for a progress report, unless the last line is too recent.
/// The first and last lines about a file are always sent.
fn line(pull: &Pull, now: Instant, told: &mut Option<(String, Instant)>) -> Option<Value> {
    match pull {
        Pull::Checked => {
            *told = None;
            Some(json!({"status": "verifying sha256 digest"}))
        }
        Pull::File { name, digest, total, completed } => {
            let just = |(of, at): &(String, Instant)| of == name && now < *at + PAUSE;
            if told.as_ref().is_some_and(just) && Some(*completed) != *total {
                return None;
            }
            *told = Some((name.clone(), now));
            let short = digest.as_deref().map(|digest| digest.get(..DIGITS).unwrap_or(digest));
            let mut line = json!({"status": format!("pulling {}", short.unwrap_or(name))});
            if let Some(digest) = digest {
                line["digest"] = format!("sha256:{digest}").into();
            }
            if let Some(total) = total {
                line["total"] = (*total).into();
            }
            line["completed"] = (*completed).into();
            Some(line)
        }
    }
}

/// Reads the body of the response.
struct Told {
    first: Option<Value>,
    lines: Lines,
}

impl hyper::body::Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let line = match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => self.lines.poll_recv(context),
        };
        line.map(|line| {
            let line = line?.unwrap_or_else(|refusal| json!({"error": refusal.message}));
            Some(Ok(Frame::data(Bytes::from(format!("{line}\n")))))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let (mut told, mut now) = (None, Instant::now());
        let mut at = |name: &str, digest: Option<&str>, completed: u64| {
            // A little more than a third, which may not be an integer.
            now += PAUSE / 3 + Duration::from_millis(1);
            let digest = digest.map(str::to_owned);
            line(&Pull::File { name: name.into(), digest, total: Some(9), completed }, now, &mut told)
        };
        let digest = "0123456789abcdef";
        let expected = |completed: u64| json!({"status": "pulling 0123456789ab", "digest": "sha256:0123456789abcdef", "total": 9, "completed": completed});
        assert_eq!(at("a", Some(digest), 0), Some(expected(0)));
        // Too early, except for the end.
        assert_eq!(at("a", Some(digest), 1), None);
        assert_eq!(at("a", Some(digest), 2), None);
        assert_eq!(at("a", Some(digest), 3), Some(expected(3)));
        assert_eq!(at("a", Some(digest), 9), Some(expected(9)));
        assert_eq!(at("b", None, 1), Some(json!({"status": "pulling b", "total": 9, "completed": 1})));
        assert_eq!(line(&Pull::Checked, now, &mut told), Some(json!({"status": "verifying sha256 digest"})));
    }
}
