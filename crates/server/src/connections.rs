//! Connections: accepts them up to a limit, applies timeouts, and handles shutdown.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::Stage;

/// Maximum number of connections that are currently being refused.
const TURNED_AWAY: usize = 50;
/// Maximum size of a request's head in bytes.
const HEAD: usize = 32 << 10;
/// Delay when the system has no file descriptor for a connection.
const PAUSE: Duration = Duration::from_millis(50);
/// Time limit for a refused connection.
const HEARING: Duration = Duration::from_secs(2);
/// The response to a refused connection.
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
    connection: close\r\ncontent-length: 130\r\n\r\n\
    {\"error\": {\"message\": \"too many connections; try again in a moment\", \"type\": \"server_error\", \
    \"param\": null, \"code\": \"overloaded\"}}";

/// Where connections come from.
pub enum Listener {
    /// From this machine or others.
    Tcp(std::net::TcpListener),
    /// This machine, for processes that may open the file.
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixListener),
}

/// A listener within the runtime.
enum Accept {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(tokio::net::UnixListener),
}

/// The transport of a connection.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

impl Accept {
    async fn accept(&self) -> std::io::Result<Box<dyn Wire>> {
        match self {
            Accept::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Pieces of an answer are small, and should not be delayed to be combined.
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            Accept::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

/// Serves until it is stopped, then either lets running requests finish or cancels them.
/// Limits the number of connections, and the time for a request's head.
///
/// # Errors
/// The system can't serve.
pub async fn serve(
    listener: Listener,
    router: Router,
    (most, head_time): (usize, Duration),
    mut stop: watch::Receiver<Stage>,
) -> std::io::Result<()> {
    let listener = match listener {
        Listener::Tcp(listener) => Accept::Tcp(TcpListener::from_std(listener)?),
        #[cfg(unix)]
        Listener::Unix(listener) => Accept::Unix(tokio::net::UnixListener::from_std(listener)?),
    };
    let capacity = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
    let mut connections = JoinSet::new();
    let stage = stop.clone();
    loop {
        tokio::select! {
            accepted = listener.accept() => match (accepted, capacity.clone().try_acquire_owned()) {
                (Ok(stream), Ok(held)) => {
                    let connection = connection(stream, router.clone(), head_time, stage.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(held);
                    });
                }
                (Ok(stream), Err(_)) => {
                    if let Ok(held) = turned_away.clone().try_acquire_owned() {
                        connections.spawn(async move {
                            let _ = timeout(HEARING, turn_away(stream)).await;
                            drop(held);
                        });
                    }
                }
                (Err(_), _) => tokio::time::sleep(PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
            _ = stop.wait_for(|stage| *stage != Stage::Serving) => break,
        }
    }
    drop(listener);
    tokio::select! {
        () = async { while connections.join_next().await.is_some() {} } => {}
        _ = stop.wait_for(|stage| *stage == Stage::Cancelling) => connections.shutdown().await,
    }
    Ok(())
}

/// Serves one connection.
/// When the client disconnects, hyper drops the work for it.
async fn connection(
    stream: Box<dyn Wire>,
    router: Router,
    head_time: Duration,
    mut stop: watch::Receiver<Stage>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head_time).max_buf_size(HEAD);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(served);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stage| *stage != Stage::Serving) => connection.as_mut().graceful_shutdown(),
    }
    // An error is the client's: it left, or doesn't speak HTTP.
    let _ = connection.await;
}

/// Refuses a connection because there are too many.
/// Reads the client's data first: closing a connection with unread data also discards the response.
async fn turn_away(mut stream: Box<dyn Wire>) -> std::io::Result<()> {
    use tokio::io::AsyncReadExt;
    let mut head = [0; 4096];
    let _ = stream.read(&mut head).await?;
    stream.write_all(FULL.as_bytes()).await?;
    stream.shutdown().await?;
    while stream.read(&mut head).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::FULL;

    #[test]
    fn a_full_server_says_so_in_whole() {
        let (head, body) = FULL.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "overloaded");
    }
}
