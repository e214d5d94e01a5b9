//! Ends of requests: clients that disconnect, and interrupts.

use std::net::TcpStream;

use serde_json::json;

use super::wait_until;
use crate::dirs::TestDir;
use crate::endpoint::server::{Answer, Piece, Server};

#[test]
fn serve_stops_for_whoever_leaves() {
    for agent in [false, true] {
        let silent = Server::answering([Answer::none(Piece::Hang), Answer::stream([Piece::Hang])]);
        let served = TestDir::npc_team(&json!([])).serve(&["-m", &format!("{}/v1#m", silent.url)]);
        for (stream, left) in [(true, 1), (false, 2)] {
            let model = if agent { "sage".to_owned() } else { format!("{}/v1#m", silent.url) };
            let client = served.begin(&model, stream);
            wait_until("the model is asked", || silent.received().len() == left);
            drop(client);
            wait_until("the model is left", || silent.closed() == left);
        }
    }
}

#[test]
fn a_request_is_one_line_of_the_log() {
    let mut served = TestDir::npc_team(&json!([])).serve(&["--verbose"]);
    let (status, _) = served.ask(json!({"model": "x\nPOST /v1/forged 200 0.00 s\r\u{1b}[2J"}));
    assert_eq!(status, 404);
    served.interrupt();
    assert_eq!(served.code(), Some(0));
    let mut told = String::new();
    std::io::Read::read_to_string(&mut served.child.stderr.take().unwrap(), &mut told).unwrap();
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("POST")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("POST /v1/chat/completions 404 "), "{told:?}");
    assert!(told.contains("forged") && !told.contains(['\u{1b}', '\r']), "{told:?}");
}

#[test]
fn serve_ends_on_interrupts() {
    let silent = Server::answering([Answer::none(Piece::Hang)]);
    let mut served = TestDir::npc_team(&json!([])).serve(&["-m", &format!("{}/v1#m", silent.url)]);
    let _client = served.begin("sage", false);
    wait_until("the model is asked", || silent.received().len() == 1);
    served.interrupt();
    let address = served.url.strip_prefix("http://").unwrap().strip_suffix("/v1").unwrap().to_owned();
    wait_until("nobody is let in", || TcpStream::connect(&address).is_err());
    assert!(served.child.try_wait().unwrap().is_none(), "what runs is waited for");
    served.interrupt();
    assert_eq!(served.code(), Some(0));
    wait_until("the model is left", || silent.closed() == 1);
    assert!(served.dir.traces()[0].contains("\"cancelled\""));
}
